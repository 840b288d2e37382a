"""The oldest torch of a project, from every kind of file that names its dependencies."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.specifiers import SpecifierSet

from amplint.torch_floor import FloorFinder, find_floor, lower_bound, parse_requirement


@pytest.mark.parametrize(
    ("constraint", "floor"),
    [
        (">=1.13", (1, 13)),
        (">= 1.13", (1, 13)),
        (">1.13.1", (1, 13)),
        ("==1.12.1", (1, 12)),
        ("===1.12.1", (1, 12)),
        ("==1.10.0+cu113", (1, 10)),
        ("==2.1.*", (2, 1)),
        ("==2.*", (2, 0)),
        (">=2", (2, 0)),
        ("~=2.2.0", (2, 2)),
        (">=2.1.0.dev20230801", (2, 1)),
        (">=1.8,>=1.10,!=1.11,<3", (1, 10)),
        ("<3,>=1.8", (1, 8)),
        ("(>=1.7)", (1, 7)),
        ("<2.0", (1, 13)),
        ("<2", (1, 13)),
        ("<2.0.0", (1, 13)),
        ("<2.0.1", (2, 0)),
        ("<=2.0", (2, 0)),
        ("<=1.12.1,!=1.11", (1, 12)),
        ("<2.3,<2.1", (2, 0)),
        ("<1", (0, 4)),
        ("<3", None),
        ("<=3.1", None),
        ("<4.2", None),
        ("!=1.9", None),
        ("", None),
        ("*", None),
        (">=${TORCH}", None),
        ("^1.13", (1, 13)),
        ("~1.13", (1, 13)),
        ("1.13.1", (1, 13)),
        ("^1.13 || ^2.0", (1, 13)),
        ("^2.0 || <1.5", (1, 4)),
        (">=1.8|1.7.*", (1, 7)),
        ("=1.13.1=py3_cuda11.7", (1, 13)),
        ("1.13.1 py3.8_cuda11.7_cudnn8_0", (1, 13)),
        (">=2.0 cuda*", (2, 0)),
        ("=*=cuda*", None),
    ],
)
def test_lower_bounds(constraint: str, floor: tuple[int, int] | None) -> None:
    assert lower_bound(constraint) == floor


VERSIONS = [(major, minor) for major in (1, 2) for minor in range(14)]
SPECIFIER = st.builds(
    lambda operator, version: (operator, version),
    st.sampled_from([">=", "==", "~=", "<", "<=", "!="]),
    st.sampled_from(VERSIONS),
)


@given(st.lists(SPECIFIER, min_size=1, max_size=3))
def test_the_floor_is_never_above_what_packaging_admits(specifiers: list[tuple[str, tuple[int, int]]]) -> None:
    text = ",".join(f"{operator}{major}.{minor}.0" for operator, (major, minor) in specifiers)
    admitted = [version for version in VERSIONS if SpecifierSet(text).contains("{}.{}.0".format(*version))]
    floor = lower_bound(text)
    if all(operator in ("<", "<=", "!=") for operator, _ in specifiers):
        assert floor is None or not any(version > floor for version in admitted)
        return
    assert floor is not None
    if admitted:
        assert floor <= admitted[0]
        if "!=" not in text:
            assert floor == admitted[0]


@given(st.text(max_size=40))
def test_no_requirement_raises(text: str) -> None:
    parsed = parse_requirement("torch" + text)
    assert parsed is None or parsed[0].startswith("torch")


@pytest.mark.parametrize(
    ("requirement", "parsed"),
    [
        ("torch", ("torch", None)),
        ("Torch>=1.13", ("Torch>=1.13", (1, 13))),
        ("pytorch==1.4", ("pytorch==1.4", (1, 4))),
        ("torch[opt-einsum] >=2.1", ("torch[opt-einsum] >=2.1", (2, 1))),
        ("torch (>=1.13)", ("torch (>=1.13)", (1, 13))),
        ("torch==1.13; python_version < '3.8'", ("torch==1.13", (1, 13))),
        ("torch==1.13 ; sys_platform == 'linux'", ("torch==1.13", (1, 13))),
        ("torch==1.13  # the last one", ("torch==1.13", (1, 13))),
        ("torch==1.13 --hash=sha256:1234", ("torch==1.13", (1, 13))),
        (
            "torch==1.10.1+cu113 -f https://download.pytorch.org/whl/cu113/torch_stable.html",
            ("torch==1.10.1+cu113", (1, 10)),
        ),
        (
            "torch @ https://download.pytorch.org/whl/cu118/torch-2.0.1%2Bcu118-cp310-cp310-linux_x86_64.whl",
            ("torch @ https://download.pytorch.org/whl/cu118/torch-2.0.1%2Bcu118-cp310-cp310-linux_x86_64.whl", (2, 0)),
        ),
        ("torch@https://example.org/torch.whl", ("torch@https://example.org/torch.whl", None)),
        ("https://example.org/torch-1.9.0-cp38.whl", ("https://example.org/torch-1.9.0-cp38.whl", (1, 9))),
        (
            "git+https://github.com/pytorch/pytorch@v1.13.1#egg=torch",
            ("git+https://github.com/pytorch/pytorch@v1.13.1#egg=torch", (1, 13)),
        ),
        ("pytorch::pytorch=1.13.1", ("pytorch::pytorch=1.13.1", (1, 13))),
        ("pytorch-gpu>=2.0", ("pytorch-gpu>=2.0", (2, 0))),
        ("pytorch-cuda=11.7", None),
        ("pytorch-lightning>=2.0", None),
        ("torchvision==0.14", None),
        ("torch-geometric>=2.3", None),
        ("torch_scatter>=2.1", None),
        ("torch.foo>=1", None),
        ("numpy @ https://example.org/torch-1.9.0.whl", None),
        ("--extra-index-url https://download.pytorch.org/whl/cu117", None),
        ("-e .[torch]", None),
        ("# torch>=1.13", None),
        ("", None),
    ],
)
def test_requirements(requirement: str, parsed: tuple[str, tuple[int, int] | None] | None) -> None:
    assert parse_requirement(requirement) == parsed


def floor_with(tmp_path: Path, **files: str) -> tuple[tuple[int, int], str] | None:
    """The floor of a directory with files, in whose names `__` stands for a dot and `_0_` for a slash."""
    for name, text in files.items():
        path = tmp_path / name.replace("__", ".").replace("_0_", "/")
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return find_floor(str(tmp_path))


PROJECT = """
[project]
name = "x"
dependencies = ["numpy", "torch>=1.13,<3"]
optional-dependencies.train = ["torch>=1.10"]
"""


def test_project_dependencies(tmp_path: Path) -> None:
    expected = ((1, 13), "pyproject.toml [project] dependencies: torch>=1.13,<3")
    assert floor_with(tmp_path, pyproject__toml=PROJECT) == expected


def test_the_lowest_of_several_lines_wins(tmp_path: Path) -> None:
    text = """[project]
dependencies = ["torch>=2.1; python_version >= '3.12'", "torch>=1.13; python_version < '3.12'"]
"""
    assert floor_with(tmp_path, pyproject__toml=text) == ((1, 13), "pyproject.toml [project] dependencies: torch>=1.13")


def test_extras_speak_only_where_dependencies_do_not(tmp_path: Path) -> None:
    text = """[project]
dependencies = ["numpy", "torch"]
[project.optional-dependencies]
a = ["torch>=2.1"]
b = ["torch>=2.0"]
"""
    expected = ((2, 0), "pyproject.toml [project.optional-dependencies] b: torch>=2.0")
    assert floor_with(tmp_path, pyproject__toml=text) == expected


@pytest.mark.parametrize(
    ("value", "floor", "shown"),
    [
        ('"^1.13"', (1, 13), '"^1.13"'),
        ('"1.13.1"', (1, 13), '"1.13.1"'),
        ('{ version = "^2.0", source = "pytorch" }', (2, 0), '{ version = "^2.0" }'),
        ('{ url = "https://x.org/torch-2.0.1.whl" }', (2, 0), '{ url = "https://x.org/torch-2.0.1.whl" }'),
        ('{ git = "https://x.org/pytorch", tag = "v2.3.0" }', (2, 3), '{ tag = "v2.3.0" }'),
        ('[{ version = "2.2" }, { version = "~2.1", python = "3.8" }]', (2, 1), '{ version = "~2.1" }'),
    ],
)
def test_poetry(tmp_path: Path, value: str, floor: tuple[int, int], shown: str) -> None:
    text = f'[tool.poetry.dependencies]\npython = "^3.10"\ntorch = {value}\n'
    expected = (floor, f"pyproject.toml [tool.poetry.dependencies]: torch = {shown}")
    assert floor_with(tmp_path, pyproject__toml=text) == expected


@pytest.mark.parametrize("value", ['"*"', '{ path = "../torch" }', "3", "[]"])
def test_poetry_without_a_version(tmp_path: Path, value: str) -> None:
    assert floor_with(tmp_path, pyproject__toml=f"[tool.poetry.dependencies]\ntorch = {value}\n") is None


def test_setup_cfg(tmp_path: Path) -> None:
    text = """[options]
install_requires =
    numpy
    torch>=1.9  # first with this
[options.extras_require]
gpu = torch>=1.8
"""
    assert floor_with(tmp_path, setup__cfg=text) == ((1, 9), "setup.cfg [options] install_requires: torch>=1.9")


def test_setup_cfg_extras(tmp_path: Path) -> None:
    text = "[options.extras_require]\ngpu =\n    torch>=1.8\n"
    assert floor_with(tmp_path, setup__cfg=text) == ((1, 8), "setup.cfg [options.extras_require] gpu: torch>=1.8")


@pytest.mark.parametrize(
    ("text", "floor"),
    [
        ('setup(install_requires=["numpy", "torch>=1.8"])', ((1, 8), "setup.py:1: torch>=1.8")),
        ('setup(\n  install_requires=(\n    "torch>=1.8",\n  ),\n)', ((1, 8), "setup.py:3: torch>=1.8")),
        ('R = ["torch>=1.7"]\nsetuptools.setup(install_requires=R)', ((1, 7), "setup.py:1: torch>=1.7")),
        ('R = ["torch>=1.7"]\nsetup(install_requires=[*R, "x"] + R)', ((1, 7), "setup.py:1: torch>=1.7")),
        ('setup(extras_require={"t": ["torch>=1.6"]})', ((1, 6), "setup.py:1: torch>=1.6")),
        (
            'setup(extras_require={"t": ["torch>=1.6"]}, install_requires=["torch>=1.9"])',
            ((1, 9), "setup.py:1: torch>=1.9"),
        ),
        ('setup(install_requires=read("torch.txt"))', None),
        ('R = R\nsetup(install_requires=R, name="torch>=1.7")', None),
    ],
)
def test_setup_py(tmp_path: Path, text: str, floor: tuple[tuple[int, int], str] | None) -> None:
    assert floor_with(tmp_path, setup__py=text) == floor


def test_requirements_file(tmp_path: Path) -> None:
    text = "# torch>=1.0\nnumpy\ntorch==1.12.1 \\\n    --hash=sha256:12 \\\n    --hash=sha256:34\nscipy\n"
    assert floor_with(tmp_path, requirements__txt=text) == ((1, 12), "requirements.txt:3: torch==1.12.1")


def test_requirements_in_utf_16(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("numpy\r\ntorch==1.12.1\r\n", encoding="utf-16")
    assert find_floor(str(tmp_path)) == ((1, 12), "requirements.txt:2: torch==1.12.1")


@pytest.mark.parametrize("option", ["-r base.txt", "-rbase.txt", "--requirement base.txt", "--requirement=base.txt"])
def test_included_requirements(tmp_path: Path, option: str) -> None:
    expected = ((1, 11), "base.txt:2: torch>=1.11")
    assert floor_with(tmp_path, requirements__txt=option, base__txt="-r requirements.txt\ntorch>=1.11") == expected


def test_a_missing_include_is_ignored(tmp_path: Path) -> None:
    text = "-r nowhere.txt\n-r https://example.org/r.txt\ntorch>=1.11\n"
    assert floor_with(tmp_path, requirements__txt=text) == ((1, 11), "requirements.txt:3: torch>=1.11")


def test_the_main_requirements_file_comes_first(tmp_path: Path) -> None:
    expected = ((2, 0), "requirements.txt:1: torch==2.0")
    assert floor_with(tmp_path, requirements__txt="torch==2.0", requirements_dev__txt="torch==1.9") == expected


def test_other_requirements_files(tmp_path: Path) -> None:
    expected = ((1, 9), "requirements/dev.txt:1: torch==1.9")
    found = floor_with(tmp_path, requirements_gpu__txt="torch==2.0", requirements_0_dev__txt="torch==1.9")
    assert found == expected


ENVIRONMENT = """name: x
channels:
  - pytorch
  - conda-forge
dependencies:
  - python=3.10
  - {conda}  # comment
  - pip
  - pip:
    - timm
    - {pip}
variables:
  - torch==1.0
"""


@pytest.mark.parametrize(
    ("conda", "pip", "floor"),
    [
        ("pytorch>=1.13", "x", ((1, 13), "environment.yml:7: pytorch>=1.13")),
        ("pytorch=1.13.1=py3_cuda", "x", ((1, 13), "environment.yml:7: pytorch=1.13.1=py3_cuda")),
        ('"pytorch::pytorch >=2.0,<2.3"', "x", ((2, 0), "environment.yml:7: pytorch::pytorch >=2.0,<2.3")),
        ("numpy", "torch==1.12.1", ((1, 12), "environment.yml:11: torch==1.12.1")),
        ("pytorch", "x", None),
    ],
)
def test_conda_environment(tmp_path: Path, conda: str, pip: str, floor: tuple[tuple[int, int], str] | None) -> None:
    assert floor_with(tmp_path, environment__yml=ENVIRONMENT.format(conda=conda, pip=pip)) == floor


def test_items_of_a_list_need_no_indentation(tmp_path: Path) -> None:
    found = floor_with(tmp_path, environment__yaml="channels:\n- pytorch=9.9\ndependencies:\n- pytorch=1.9\n")
    assert found == ((1, 9), "environment.yaml:4: pytorch=1.9")


def test_the_range_of_the_library_wins_over_pins(tmp_path: Path) -> None:
    expected = ((1, 13), "pyproject.toml [project] dependencies: torch>=1.13,<3")
    assert floor_with(tmp_path, pyproject__toml=PROJECT, requirements__txt="torch==1.9") == expected


def test_a_bare_name_leaves_the_word_to_the_next_file(tmp_path: Path) -> None:
    bare = '[project]\ndependencies = ["torch"]\n'
    expected = ((2, 1), "requirements.txt:1: torch==2.1")
    assert floor_with(tmp_path, pyproject__toml=bare, requirements__txt="torch==2.1") == expected


def test_the_nearest_directory_that_mentions_torch_decides(tmp_path: Path) -> None:
    sub = tmp_path / "sub" / "deep"
    sub.mkdir(parents=True)
    (tmp_path / ".git").mkdir()
    (tmp_path / "requirements.txt").write_text("torch==1.9")
    finder = FloorFinder()
    assert finder.find(str(sub)) == ((1, 9), "requirements.txt:1: torch==1.9")
    assert finder.find(str(tmp_path)) == ((1, 9), "requirements.txt:1: torch==1.9")
    (sub.parent / "requirements.txt").write_text("torch==2.3")
    assert find_floor(str(sub)) == ((2, 3), "sub/requirements.txt:1: torch==2.3")
    (sub / "requirements.txt").write_text("torch")
    assert find_floor(str(sub)) is None
    (sub / "requirements.txt").write_text("numpy")
    assert find_floor(str(sub)) == ((2, 3), "sub/requirements.txt:1: torch==2.3")


def test_the_search_ends_at_the_root_of_the_repository(tmp_path: Path) -> None:
    (tmp_path / "repository" / ".git").mkdir(parents=True)
    (tmp_path / "requirements.txt").write_text("torch==1.9")
    assert find_floor(str(tmp_path / "repository")) is None


def test_every_directory_is_read_once(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "requirements.txt").write_text("torch==1.9")
    finder = FloorFinder()
    first = finder.find(str(tmp_path / "a"))
    (tmp_path / "requirements.txt").unlink()
    assert finder.find(str(tmp_path / "a")) is first
    assert finder.find(str(tmp_path)) is first


def test_broken_files_are_passed_over_with_a_message(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "pyproject.toml").write_text("torch = [")
    (tmp_path / "setup.cfg").write_text("torch\n[options")
    (tmp_path / "setup.py").write_text("import torch ~")
    (tmp_path / "requirements.txt").mkdir()
    (tmp_path / "environment.yml").write_bytes(b"dependencies:\n - pytorch=1.9 # \xff")
    finder = FloorFinder()
    assert finder.find(str(tmp_path)) == ((1, 9), "environment.yml:2: pytorch=1.9")
    assert [Path(message.partition(": ")[0]).name for message in finder.messages] == [
        "pyproject.toml",
        "setup.cfg",
        "setup.py",
        "requirements.txt",
    ]
    assert finder.messages[0].startswith(f"{tmp_path}/pyproject.toml: not read for the oldest torch: Invalid value")


def test_wrong_types_are_passed_over(tmp_path: Path) -> None:
    text = '[project]\ndependencies = "torch>=1.9"\noptional-dependencies = ["torch"]\n[tool]\npoetry = 3\n'
    assert floor_with(tmp_path, pyproject__toml=text) is None


def test_a_missing_directory_counts_as_empty(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("torch==1.9")
    assert find_floor(str(tmp_path / "no" / "where")) == ((1, 9), "requirements.txt:1: torch==1.9")
