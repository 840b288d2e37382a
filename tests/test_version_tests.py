"""On which releases a test holds, in the spellings that projects use."""

from __future__ import annotations

import ast

import pytest

from amplint.settings import DEFAULT
from amplint.source import SourceFile
from amplint.versions.releases import ALL, TorchRange, range_of
from amplint.versions.version_tests import Truth

IMPORTS = """
import importlib.metadata, importlib.util, inspect, operator, sys, torch, packaging.version
import importlib.metadata as metadata
from packaging import version
from packaging.version import Version, parse
from torch.torch_version import TorchVersion
from elsewhere import TORCH_VERSION, utils
MAJOR, MINOR = (int(part) for part in torch.__version__.split(".")[:2])
"""

SINCE = {
    (1, 6): [
        "LooseVersion(torch.__version__) >= LooseVersion('1.6.0')",
        "hasattr(torch.cuda, 'amp') and hasattr(torch.cuda.amp, 'autocast')",
    ],
    (1, 10): [
        "check_version(torch.__version__, '1.10.0')",
        "torch.__version__ > '1.9.1'",
        "not is_torch_less_than_1_10",
    ],
    (1, 12): ["hasattr(torch, 'amp')", "importlib.util.find_spec('torch.amp') is not None"],
    (2, 0): [
        "int(torch.__version__.split('.')[0]) >= 2",
        "int(torch.__version__[0]) >= 2",
        "torch.__version__[0] == '2'",
        "parse(torch.__version__).major >= 2",
        "not torch.__version__.startswith('1.')",
        "PYTORCH_V2",
        "TORCH_MAJOR >= 2",
        "MAJOR >= 2",
    ],
    (2, 3): [
        "hasattr(torch.amp, 'GradScaler')",
        "callable(getattr(torch.amp, 'GradScaler', None))",
        "'GradScaler' in dir(torch.amp)",
        "'GradScaler' in torch.amp.__all__",
        "sys.modules['torch'].__version__ >= '2.3'",
        "parse(importlib.metadata.version('torch')) >= parse('2.3')",
        "not version.parse(metadata.version('torch')) < version.parse('2.3')",
        "packaging.version.parse(torch.__version__) >= packaging.version.parse('2.3.0a0')",
        "parse_version(pkg_resources.get_distribution('torch').version) >= parse_version('2.3')",
        "torch_greater_equal(2, 3)",
        "TORCH_MAJOR >= 2 and TORCH_MINOR >= 3",
        "(MAJOR, MINOR) >= (2, 3)",
        "getattr(torch, '__version__') >= '2.3'",
    ],
    (2, 4): [
        "torch.__version__ >= '2.4'",
        "torch.__version__ >= (2, 4)",
        "TorchVersion('2.4') <= torch.__version__",
        "version.parse(torch.__version__) >= version.parse('2.4.0')",
        "version.parse(version.parse(torch.__version__).base_version) >= version.parse('2.4')",
        "version.parse(torch.__version__).release[:2] >= (2, 4)",
        "Version(torch.__version__.split('+')[0]).release >= (2, 4)",
        "tuple(map(int, torch.__version__.split('+')[0].split('.')[:2])) >= (2, 4)",
        "[int(x) for x in torch.__version__.split('.')[:2]] >= [2, 4]",
        "tuple(int(x) for x in torch.__version__.split('.') if x.isdigit())[:2] >= (2, 4)",
        "operator.ge(parse(torch.__version__), parse('2.4'))",
        "is_torch_version('>=', '2.4.0')",
        "compare_version('torch', operator.ge, '2.4.0')",
        "torch_version_ge('2.4')",
        "is_torch_greater_or_equal('2.4')",
        "_torch_version_at_least(2, 4)",
        "has_torch_version('2.4')",
        "RequirementCache('torch>=2.4.0')",
        "_TORCH_GREATER_EQUAL_2_4",
        "is_torch_greater_or_equal_than_2_4",
        "IS_TORCH_2_4",
        "TORCH_2_4",
        "utils.TORCH_GE_2_4",
        "digit_version(TORCH_VERSION) >= digit_version('2.4')",
        "getattr(torch.amp, 'custom_fwd', None) is not None",
        "'device_type' in inspect.signature(torch.amp.custom_fwd).parameters",
        "(modern := torch.__version__ >= '2.4')",
        "True if torch.__version__ >= '2.4' else False",
        "bool(torch.__version__ >= '2.4')",
        "any([torch.__version__ >= '2.4', False])",
    ],
}
"""Tests by the first version on which they hold."""

TEXT = {
    "torch.__version__.split('+')[0] >= '2.4.0'": TorchRange((2, 10), None),
    "str(torch.__version__) >= '2.4'": TorchRange((2, 10), None),
    "str(torch.__version__) >= '2.10'": TorchRange((2, 2), (2, 10)),
    "torch.__version__[:3] >= '2.4'": TorchRange((2, 10), None),
    "float(torch.__version__[:3]) >= 2.4": TorchRange((2, 10), None),
    "float('.'.join(torch.__version__.split('.')[:2])) >= 2.4": TorchRange((2, 10), None),
    "torch.version.__version__ >= '2.4'": TorchRange((2, 10), None),
    "importlib.metadata.version('torch') >= '2.4'": TorchRange((2, 10), None),
    "tuple(torch.__version__.split('.')[:2]) >= ('2', '4')": TorchRange((2, 10), None),
    "f'{parse(torch.__version__).major}.{parse(torch.__version__).minor}' >= '2.4'": TorchRange((2, 10), None),
    "torch.__version__.startswith('2.1')": TorchRange((2, 10), None),
    "int(torch.__version__[2]) >= 4": TorchRange((1, 10), None),
    "torch.__version__.split('+')[0] >= '1.6'": TorchRange((1, 10), (2, 0)),
}
"""Tests that cut the version up, and the releases on which the answer is not the one that is meant."""

UNREADABLE = [
    "torch.cuda.is_available()",
    "flag",
    "self.flag",
    "x > 3",
    "hasattr(x, 'amp')",
    "hasattr(torch, 'compile')",
    "transformers.__version__ >= '4.0'",
    "is_transformers_version('>=', '4.0')",
    "config.version >= 2",
    "int(x) >= 2",
    "torch.__version__ >= minimum",
    "compare(torch.__version__)",
    "lambda: torch.__version__",
    "CUDA_12_4",
    "torch_cuda_11_8",
]


def truth(test: str, intended: bool = True) -> Truth:
    file = SourceFile(f"{IMPORTS}({test})\n", "test.py", DEFAULT)
    statement = file.tree.body[-1]
    assert isinstance(statement, ast.Expr)
    return file.guards.tests.truth(statement.value, intended)


@pytest.mark.parametrize(
    ("test", "first"), [(test, first) for first, tests in SINCE.items() for test in tests], ids=lambda value: str(value)
)
def test_since(test: str, first: tuple[int, int]) -> None:
    found = truth(test)
    assert range_of(found.true) == TorchRange(first, None)
    assert range_of(found.false) == TorchRange(None, first)
    assert found.true ^ found.false == ALL
    assert truth(test, intended=False) == found


@pytest.mark.parametrize(("test", "wrong"), TEXT.items())
def test_text(test: str, wrong: TorchRange) -> None:
    meant, given = truth(test), truth(test, intended=False)
    assert meant.true ^ meant.false == ALL
    assert range_of(meant.true ^ given.true) == wrong


@pytest.mark.parametrize("test", UNREADABLE)
def test_unreadable(test: str) -> None:
    assert truth(test) == Truth(ALL, ALL)


def test_negation_and_three_values() -> None:
    known = truth("torch.__version__ >= '2.4'")
    assert truth("not torch.__version__ >= '2.4'") == ~known
    assert truth("flag and torch.__version__ >= '2.4'") == Truth(known.true, ALL)
    assert truth("flag or torch.__version__ >= '2.4'") == Truth(ALL, known.false)


@pytest.mark.parametrize("test", ["torch.__version__ >= '1.5' or x", "torch.__version__ not in ('1.5.0', '1.5.1')"])
def test_a_few_releases(test: str) -> None:
    assert range_of(truth(test).true) == TorchRange(None, None)


def test_definition() -> None:
    text = "import torch\nNEW = torch.__version__ >= '2.4'\nif not NEW:\n    pass\n"
    file = SourceFile(text, "test.py", DEFAULT)
    test = file.tree.body[-1]
    assert isinstance(test, ast.If)
    assert ast.unparse(file.guards.tests.definition(test.test)) == "torch.__version__ >= '2.4'"
