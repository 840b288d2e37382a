"""The rules that word the engine's violations: where they point, what they fix, and where they leave it to the user."""

from __future__ import annotations

from textwrap import dedent

import pytest

from amplint import check_source, fix_source
from amplint.settings import Settings

PROTOCOL = Settings(select=("AMP101", "AMP102", "AMP2", "AMP3"))

LOOP = """
    import torch

    def train(model, loader, optimizer, other, limit):
        scaler = torch.amp.GradScaler("cuda")
        for i, x in enumerate(loader):
            optimizer.zero_grad()
            with torch.autocast("cuda", dtype=torch.float16):
                loss = model(x).mean()
"""


def loop(*lines: str) -> str:
    """A training loop whose iteration ends with the given lines; the first of them stands on row 10."""
    return dedent(LOOP) + "".join(f"        {line}\n" for line in lines)


def accumulation(*lines: str) -> str:
    """A loop like that of `loop` that zeroes gradients nowhere; the first of the lines stands on row 9."""
    return loop(*lines).replace("        optimizer.zero_grad()\n", "", 1)


def found(text: str) -> list[tuple[str, int, str]]:
    """The (code, row, level) triples of a text."""
    return [(d.code, d.location.row, d.level.label) for d in check_source(dedent(text), "t.py", PROTOCOL)]


def fixed(text: str, *, unsafe: bool = False) -> str:
    """The text after its fixes."""
    return fix_source(dedent(text), "t.py", PROTOCOL, unsafe=unsafe).text


CLIP = "torch.nn.utils.clip_grad_norm_(model.parameters(), {threshold})"


@pytest.mark.parametrize(
    ("threshold", "applicability"),
    [
        pytest.param("1.0", "safe", id="plain"),
        pytest.param("100", "safe", id="the largest plain one"),
        pytest.param("1e5", "unsafe", id="may have been tuned on scaled gradients"),
        pytest.param("limit", "unsafe", id="computed"),
    ],
)
def test_clip_before_unscale_is_safe_for_small_literals(threshold: str, applicability: str) -> None:
    text = loop(
        "scaler.scale(loss).backward()", CLIP.format(threshold=threshold), "scaler.step(optimizer)", "scaler.update()"
    )
    (diagnostic,) = check_source(text, "t.py", PROTOCOL)
    assert (diagnostic.code, diagnostic.location.row) == ("AMP301", 11)
    assert diagnostic.fix is not None
    assert diagnostic.fix.applicability.label == applicability
    assert diagnostic.related[0].location.row == 10


def test_unscale_that_follows_in_an_arm_is_not_doubled() -> None:
    text = loop(
        "scaler.scale(loss).backward()",
        CLIP.format(threshold="1.0"),
        "if limit:",
        "    scaler.unscale_(optimizer)",
        "scaler.step(optimizer)",
        "scaler.update()",
    )
    assert [(code, row) for code, row, _ in found(text)] == [("AMP301", 11)]
    assert fixed(text, unsafe=True) == text


def test_a_late_unscale_moves_before_the_clip_in_its_arm() -> None:
    late = ("if limit(x):", f"    {CLIP.format(threshold='1.0')}", "    scaler.unscale_(optimizer)")
    right = ("if limit(x):", "    scaler.unscale_(optimizer)", f"    {CLIP.format(threshold='1.0')}")
    steps = ("scaler.step(optimizer)", "scaler.update()")
    text = loop("scaler.scale(loss).backward()", *late, *steps)
    assert [(code, row) for code, row, _ in found(text)] == [("AMP301", 12)]
    assert fixed(text, unsafe=True) == loop("scaler.scale(loss).backward()", *right, *steps)


def test_unscale_on_another_way_is_not_repeated() -> None:
    text = loop(
        "scaler.scale(loss).backward()",
        "if limit:",
        "    scaler.unscale_(optimizer)",
        CLIP.format(threshold="1.0"),
        "scaler.step(optimizer)",
        "scaler.update()",
    )
    (diagnostic,) = check_source(text, "t.py", PROTOCOL)
    assert (diagnostic.code, diagnostic.location.row) == ("AMP301", 13)
    assert [place.message for place in diagnostic.related] == ["gradients are scaled here", "when `limit` is false"]
    assert fixed(text, unsafe=True) == text


@pytest.mark.parametrize(
    ("flag", "made"),
    [
        ("limit", "GradScaler('cuda') if limit else None"),
        ("scaler is not None", "GradScaler('cuda') if limit else None"),
        ("not other", "GradScaler('cuda') if not other else None"),
    ],
)
def test_unscale_goes_under_the_flag_of_the_step(flag: str, made: str) -> None:
    arms = (
        f"if {flag}:",
        "    scaler.scale(loss).backward()",
        "else:",
        "    loss.backward()",
        CLIP.format(threshold="1.0"),
        f"if {flag}:",
        "    scaler.step(optimizer)",
        "    scaler.update()",
        "else:",
        "    optimizer.step()",
    )
    text = loop(*arms).replace('GradScaler("cuda")', made)
    right = loop(*arms[:4], f"if {flag}:", "    scaler.unscale_(optimizer)", *arms[4:])
    right = right.replace('GradScaler("cuda")', made)
    assert [(code, row) for code, row, _ in found(text)] == [("AMP301", 14)]
    assert fixed(text) == text
    assert fixed(text, unsafe=True) == right
    assert found(right) == []


def test_clip_with_a_threshold_multiplied_by_the_scale_is_silent() -> None:
    text = loop(
        "scaler.scale(loss).backward()",
        CLIP.format(threshold="1.0 * scaler.get_scale()"),
        "scaler.step(optimizer)",
        "scaler.update()",
    )
    assert found(text) == []


def test_unscale_goes_before_a_loop_that_clips() -> None:
    clip = ("for group in optimizer.param_groups:", '    clip_grad_norm_(group["params"], 1.0)')
    text = loop("scaler.scale(loss).backward()", *clip, "scaler.step(optimizer)", "scaler.update()")
    right = ("scaler.unscale_(optimizer)", *clip, "scaler.step(optimizer)", "scaler.update()")
    assert [(code, row) for code, row, _ in found(text)] == [("AMP301", 12)]
    assert fixed(text, unsafe=True) == loop("scaler.scale(loss).backward()", *right)


def test_optimizers_of_a_later_loop_are_all_unscaled() -> None:
    step = ("for each in optimizers:", "    scaler.step(each)", "scaler.update()")
    clip = "clip_grad_norm_(model.parameters(), 1.0)"
    text = loop("scaler.scale(loss).backward()", clip, *step)
    right = ("for each in optimizers:", "    scaler.unscale_(each)", clip, *step)
    assert [(code, row) for code, row, _ in found(text)] == [("AMP301", 11)]
    assert fixed(text, unsafe=True) == loop("scaler.scale(loss).backward()", *right)


CLIPPED = "norm = clip_grad_norm_(model.parameters(), 1.0)"


@pytest.mark.parametrize(
    ("steps", "right"),
    [
        pytest.param(
            ("for each in (optimizer, other):", "    scaler.step(each)"),
            ("for each in (optimizer, other):", "    scaler.step(each)", "scaler.update()"),
            id="behind a loop over optimizers",
        ),
        pytest.param(
            ("scaler.unscale_(optimizer)", CLIPPED, "if norm < limit:", "    scaler.step(optimizer)"),
            (
                "scaler.unscale_(optimizer)",
                CLIPPED,
                "if norm < limit:",
                "    scaler.step(optimizer)",
                "scaler.update()",
            ),
            id="behind the test of a step that may not be taken",
        ),
        pytest.param(
            ("if limit:", "    scaler.unscale_(optimizer)", "    scaler.step(optimizer)", "    optimizer.zero_grad()"),
            (
                "if limit:",
                "    scaler.unscale_(optimizer)",
                "    scaler.step(optimizer)",
                "    scaler.update()",
                "    optimizer.zero_grad()",
            ),
            id="inside the arm that unscales and steps",
        ),
        pytest.param(
            ("if limit:", "    scaler.unscale_(optimizer)", "if limit:", "    scaler.step(optimizer)"),
            (
                "if limit:",
                "    scaler.unscale_(optimizer)",
                "if limit:",
                "    scaler.step(optimizer)",
                "    scaler.update()",
            ),
            id="under the test of both",
        ),
    ],
)
def test_a_missing_update_goes_where_all_steps_are_taken(steps: tuple[str, ...], right: tuple[str, ...]) -> None:
    text = loop("scaler.scale(loss).backward()", *steps)
    assert {code for code, _, _ in found(text)} == {"AMP201"}
    assert fixed(text) == loop("scaler.scale(loss).backward()", *right)


def test_counters_stay_before_the_boundary() -> None:
    unscale = ("scaler.unscale_(optimizer)", "clip_grad_norm_(model.parameters(), 1.0)")
    step = ("scaler.step(optimizer)", "scaler.update()", "optimizer.zero_grad()")
    text = accumulation(
        "scaler.scale(loss).backward()", *unscale, "n += 1", "if n % 4 == 0:", *(f"    {line}" for line in step)
    )
    right = ("n += 1", "if n % 4 == 0:", *(f"    {line}" for line in (*unscale, *step)))
    assert [(code, row) for code, row, _ in found(text)] == [("AMP305", 10)]
    assert fixed(text, unsafe=True) == accumulation("scaler.scale(loss).backward()", *right)


def test_norm_that_is_read_on_every_micro_batch_stays() -> None:
    text = accumulation(
        "scaler.scale(loss).backward()",
        "scaler.unscale_(optimizer)",
        "norm = clip_grad_norm_(model.parameters(), 1.0)",
        "if n % 4 == 0:",
        "    scaler.step(optimizer)",
        "    scaler.update()",
        "    optimizer.zero_grad()",
        "log(norm)",
    )
    assert [(code, row) for code, row, _ in found(text)] == [("AMP305", 10)]
    assert fixed(text, unsafe=True) == text


def test_clip_for_two_optimizers_is_left_to_the_user() -> None:
    text = loop(
        "scaler.scale(loss).backward()",
        CLIP.format(threshold="1.0"),
        "scaler.step(optimizer)",
        "scaler.step(other)",
        "scaler.update()",
    )
    assert [(code, row) for code, row, _ in found(text)] == [("AMP301", 11)]
    assert fixed(text, unsafe=True) == text


def test_tail_of_a_region_moves_out_with_its_comments_and_strings() -> None:
    text = """
    import torch

    def train(model, loader, optimizer):
        for x in loader:
            with torch.autocast("cuda", dtype=torch.bfloat16):
                loss = model(x).mean()  # the loss

                # now the gradients
                loss.backward()
                print('''a
      b''')
                optimizer.step()  # and the step
            optimizer.zero_grad()
    """
    assert [code for code, _, _ in found(text)] == ["AMP101"]
    assert fixed(text) == dedent(
        """
    import torch

    def train(model, loader, optimizer):
        for x in loader:
            with torch.autocast("cuda", dtype=torch.bfloat16):
                loss = model(x).mean()  # the loss

            # now the gradients
            loss.backward()
            print('''a
      b''')
            optimizer.step()  # and the step
            optimizer.zero_grad()
    """
    )


def test_region_with_another_context_manager_is_left() -> None:
    text = dedent(
        """
        import torch

        for x in loader:
            with torch.autocast("cuda", dtype=torch.bfloat16), profiler:
                loss = model(x).mean()
                loss.backward()
        """
    )
    assert found(text) == [("AMP101", 7, "warning")]
    assert fixed(text, unsafe=True) == text


def test_backward_with_a_forward_after_it_is_left() -> None:
    text = dedent(
        """
        import torch

        for x in loader:
            with torch.autocast("cuda", dtype=torch.bfloat16):
                loss = model(x).mean()
                loss.backward()
                out = model(x)
        """
    )
    assert ("AMP101", 7, "warning") in found(text)
    assert fixed(text, unsafe=True) == text


def test_region_moves_into_nested_loops() -> None:
    text = """
    import torch

    def train(model, loader, optimizer):
        with torch.autocast("cuda", dtype=torch.bfloat16):  # bfloat16
            for x in loader:
                for _ in range(2):
                    loss = model(x).mean()
                    optimizer.zero_grad()
                    loss.backward()
                    optimizer.step()
        return loss
    """
    assert [(code, row) for code, row, _ in found(text)] == [("AMP101", 10), ("AMP102", 11)]
    assert fixed(text) == dedent(
        """
    import torch

    def train(model, loader, optimizer):
        for x in loader:
            for _ in range(2):
                with torch.autocast("cuda", dtype=torch.bfloat16):  # bfloat16
                    loss = model(x).mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        return loss
    """
    )


def test_plain_step_becomes_the_scalers() -> None:
    text = loop("scaler.scale(loss).backward()", "optimizer.step()", "scaler.update()")
    assert [(code, row) for code, row, _ in found(text)] == [("AMP206", 11)]
    assert fixed(text, unsafe=True) == text.replace("optimizer.step()", "scaler.step(optimizer)")


def test_double_step_in_another_block_is_left() -> None:
    text = loop(
        "scaler.scale(loss).backward()",
        "if limit:",
        "    scaler.step(optimizer)",
        "    scaler.update()",
        "optimizer.step()",
    )
    assert "AMP207" in [code for code, _, _ in found(text)]
    assert "        optimizer.step()\n" in fixed(text, unsafe=True)


def test_update_goes_before_each_continue() -> None:
    text = loop(
        "scaler.scale(loss).backward()",
        "scaler.unscale_(optimizer)",
        "if limit: continue",
        "scaler.step(optimizer)",
        "scaler.update()",
    )
    assert "AMP202" in [code for code, _, _ in found(text)]
    assert "if limit: scaler.update(); continue\n" in fixed(text, unsafe=True)


SKIP = ("scaler.scale(loss).backward()", "scaler.unscale_(optimizer)", "if limit:", "    log(limit)", "    continue")
STEP = ("scaler.step(optimizer)", "scaler.update()")


@pytest.mark.parametrize(
    ("zero", "added"),
    [
        pytest.param("optimizer.zero_grad(set_to_none=True)", "optimizer.zero_grad(set_to_none=True)", id="optimizer"),
        pytest.param("model.zero_grad()", "model.zero_grad()", id="model"),
    ],
)
def test_gradients_that_the_end_of_the_loop_zeroes_are_zeroed_before_each_continue(zero: str, added: str) -> None:
    text = accumulation(*SKIP, *STEP, zero)
    right = (*SKIP[:-1], "    scaler.update()", f"    {added}", "    continue")
    assert [(code, row) for code, row, _ in found(text)] == [("AMP202", 10)]
    assert fixed(text, unsafe=True) == accumulation(*right, *STEP, zero)
    assert found(fixed(text, unsafe=True)) == []


def test_gradients_that_were_zeroed_before_the_continue_are_not_zeroed_again() -> None:
    skip = (*SKIP[:3], "    optimizer.zero_grad()", "    continue")
    right = (*SKIP[:3], "    optimizer.zero_grad()", "    scaler.update()", "    continue")
    assert fixed(accumulation(*skip, *STEP, "optimizer.zero_grad()"), unsafe=True) == accumulation(
        *right, *STEP, "optimizer.zero_grad()"
    )


@pytest.mark.parametrize(
    "tail",
    [
        pytest.param((), id="nothing zeroes them in view"),
        pytest.param(("model.zero_grad()", "other.zero_grad()"), id="two others"),
        pytest.param(("zero = optimizer.zero_grad()",), id="not a statement"),
    ],
)
def test_update_before_continue_is_not_offered_where_the_gradients_would_stay(tail: tuple[str, ...]) -> None:
    text = accumulation(*SKIP, *STEP, *tail)
    assert [(code, row) for code, row, _ in found(text)] == [("AMP202", 10)]
    assert fixed(text, unsafe=True) == text


def test_update_in_a_handler_of_the_forward_is_left_to_the_user() -> None:
    text = loop(
        "try:",
        "    scaler.scale(model(x).mean()).backward()",
        "    scaler.step(optimizer)",
        "    check(loss)",
        "    scaler.update()",
        "except ValueError:",
        "    continue",
    )
    assert [(code, row) for code, row, _ in found(text)] == [("AMP202", 12)]
    assert fixed(text, unsafe=True) == text


def test_step_goes_behind_the_clip_that_follows_a_late_unscale() -> None:
    late = ("scaler.step(optimizer)", "scaler.unscale_(optimizer)", "norm = clip_grad_norm_(model.parameters(), 1.0)")
    text = loop("scaler.scale(loss).backward()", *late, "scaler.update()")
    right = loop("scaler.scale(loss).backward()", *late[1:], late[0], "scaler.update()")
    assert [(code, row) for code, row, _ in found(text)] == [("AMP304", 12)]
    assert fixed(text) == right
    assert found(fixed(text)) == []


def test_one_unscaled_loss_of_two_is_scaled_keeping_its_arguments() -> None:
    text = loop(
        "loss, extra = model(x)",
        "scaler.scale(loss).backward(retain_graph=True)",
        "extra.backward(retain_graph=False)",
        "scaler.step(optimizer)",
        "scaler.update()",
    )
    assert [(code, row) for code, row, _ in found(text)] == [("AMP208", 12)]
    assert "        scaler.scale(extra).backward(retain_graph=False)\n" in fixed(text)


def test_scaler_that_needs_the_loop_variable_stays() -> None:
    text = dedent(
        """
        import torch

        for epoch in range(9):
            scaler = torch.amp.GradScaler("cuda", init_scale=2.0**epoch)
            for x in loader:
                scaler.scale(model(x)).backward()
                scaler.step(optimizer)
                scaler.update()
        """
    )
    assert found(text) == [("AMP211", 5, "warning")]
    assert fixed(text, unsafe=True) == text


@pytest.mark.parametrize(
    ("call", "rows"),
    [
        pytest.param("scaler.step(optimizer, closure=closure)", [13], id="keyword"),
        pytest.param("scaler.step(optimizer, closure)", [13], id="position"),
        pytest.param("scaler.step(optimizer, lambda: loss)", [13], id="lambda"),
        pytest.param("scaler.step(optimizer, closure=None)", [], id="none"),
        pytest.param("scaler.step(optimizer, limit)", [], id="a parameter that may be None"),
        pytest.param("self.state.scaler.step(optimizer, closure)", [], id="somebody else's scaler"),
    ],
)
def test_closures(call: str, rows: list[int]) -> None:
    text = loop("def closure():", "    return loss", "scaler.scale(loss).backward()", call, "scaler.update()")
    found_rows = [d.location.row for d in check_source(text, "t.py", Settings(select=("AMP210",)))]
    assert found_rows == rows


def test_lbfgs_through_the_scaler() -> None:
    text = 'import torch\n\nopt = torch.optim.LBFGS(p)\nscaler = torch.amp.GradScaler("cuda")\nscaler.step(opt)\n'
    assert [d.location.row for d in check_source(text, "t.py", Settings(select=("AMP210",)))] == [5]
