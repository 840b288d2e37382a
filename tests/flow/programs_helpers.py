"""Programs in which half of the story lies in a helper, a handler or the arm of a test."""

from __future__ import annotations

from tests.flow.programs import program

program(
    "a helper unscales in a try, and the handler does nothing",
    """
    def unscale(opt, scaler):
        scaler.unscale_(opt)

    def train(model, opt, loader):
        scaler = GradScaler("cpu")
        for x in loader:
            opt.zero_grad()
            scaler.scale(model(x).mean()).backward()
            try:
                unscale(opt, scaler)
            except RuntimeError:
                pass
            clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(opt)
            scaler.update()
""",
)
program(
    "a helper that computes first may not come to its unscale_",
    """
    def unscale(opt, scaler, model, x):
        check(model, x)
        scaler.unscale_(opt)

    def train(model, opt, loader):
        scaler = GradScaler("cpu")
        for x in loader:
            opt.zero_grad()
            scaler.scale(model(x).mean()).backward()
            try:
                unscale(opt, scaler, model, x)
            except RuntimeError:
                pass
            clip_grad_norm_(model.parameters(), 1.0)  # !clip-before-unscale
            scaler.step(opt)
            scaler.update()
""",
)
program(
    "a helper of helpers raises before the first event of either",
    """
    def forward(model, x):
        return check(model(x))

    def whole(model, opt, x, scaler):
        loss = forward(model, x)
        scaler.scale(loss).backward()
        scaler.step(opt)
        scaler.update()

    def train(model, opt, loader):
        scaler = GradScaler("cpu")
        for x in loader:
            opt.zero_grad()
            try:
                whole(model, opt, x, scaler)
            except RuntimeError:
                scaler.update()  # !update-before-step
""",
)
program(
    "gradients are unscaled and thrown away before a clip, and others are scaled",
    """
    def train(model, opt, model_b, opt_b, loader):
        scaler = GradScaler("cpu")
        for x in loader:
            opt_b.zero_grad()
            scaler.scale(model_b(x).mean()).backward()
            scaler.unscale_(opt_b)
            scaler.step(opt_b)
            scaler.update()
            opt.zero_grad()
            scaler.scale(model_b(model(x)).mean()).backward()
            try:
                scaler.unscale_(opt)
            finally:
                opt.zero_grad()  # !no-gradients-at-step
            clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(opt)
            scaler.update()
""",
)
program(
    "a helper throws the gradients away, and another zero_grad is right",
    """
    def finish(opt):
        opt.zero_grad()

    def train(model, opt, loader):
        scaler = GradScaler("cpu")
        for x in loader:
            opt.zero_grad()
            scaler.scale(model(x).mean()).backward()
            scaler.unscale_(opt)
            finish(opt)  # !no-gradients-at-step
            scaler.step(opt)
            scaler.update()
""",
)
program(
    "the model throws the gradients away, and the optimizer's zero_grad is right",
    """
    def train(model, opt, loader):
        scaler = GradScaler("cpu")
        for x in loader:
            opt.zero_grad()
            scaler.scale(model(x).mean()).backward()
            model.zero_grad()  # !no-gradients-at-step
            scaler.step(opt)
            scaler.update()
""",
)
program(
    "a loop in the caller steps three times through a helper",
    """
    class T:
        def __init__(self, opt):
            self.gs = GradScaler("cpu")
            self.opt = opt

        def _step(self):
            self.gs.step(self.opt)

        def fit(self, model, loader):
            for x in loader:
                self.gs.scale(model(x).mean()).backward()
                for _ in range(3):
                    self._step()  # !scaler-step-twice
                self.gs.update()
""",
)
program(
    "a loop inside the helper steps three times",
    """
    class T:
        def __init__(self, opt):
            self.gs = GradScaler("cpu")
            self.opt = opt

        def _step(self):
            for _ in range(3):
                self.gs.step(self.opt)  # !scaler-step-twice

        def fit(self, model, loader):
            for x in loader:
                self.gs.scale(model(x).mean()).backward()
                self._step()
                self.gs.update()
""",
)
program(
    "a counter is compared, skips the step and is set back after the arm",
    """
    def train(model, opt, loader):
        scaler = GradScaler("cpu")
        n = 0
        for x in loader:
            scaler.scale(model(x).mean()).backward()
            n += 1
            scaler.unscale_(opt)  # !unscale-in-accumulation
            if n < 4:
                continue
            n = 0
            scaler.step(opt)
            scaler.update()
            opt.zero_grad()
""",
)
program(
    "the loss is scaled in one arm only, with accumulation",
    """
    def train(model, opt, loader):
        scaler = GradScaler("cpu")
        for i, (x, y) in enumerate(loader):
            loss = model(x).sum()
            if y > 0.5:
                loss = scaler.scale(loss)
            loss.backward()  # !unscaled-backward
            if i % 2 == 1:
                scaler.step(opt)
                scaler.update()
                opt.zero_grad()
""",
)
program(
    "a None scaler in the arm of its own test",
    """
    def train(model, opt, loader, flag):
        scaler = GradScaler("cpu") if flag else None
        for x in loader:
            loss = model(x).sum()
            if scaler:
                scaler.scale(loss).backward()
                scaler.step(opt)
                scaler.update()
            else:
                loss.backward()
                scaler.step(opt)  # !scaler-maybe-unbound
""",
)
program(
    "a None scaler in the arm of the flag that decides, the wrong way round",
    """
    def train(model, opt, loader, flag):
        scaler = None
        if flag:
            scaler = GradScaler("cpu")
        for x in loader:
            loss = model(x).sum()
            if flag:
                scaler.scale(loss).backward()
                scaler.step(opt)
                scaler.update()
            else:
                loss.backward()
                opt.step()
            if not flag:
                scaler.update()  # !scaler-maybe-unbound
""",
)
program(
    "a scaler that some other test tells to be there",
    """
    def train(model, opt, loader, flag, warm):
        scaler = None
        if flag:
            scaler = GradScaler("cpu")
        for x in loader:
            loss = model(x).sum()
            if warm:
                scaler.scale(loss).backward()
                scaler.step(opt)
                scaler.update()
            else:
                loss.backward()
                opt.step()
""",
)
program(
    "a scaler that is set from outside, under a flag",
    """
    class T:
        def __init__(self, opt, amp):
            self.opt = opt
            self.amp = amp
            self.scaler = None

        def fit(self, model, loader):
            for x in loader:
                loss = model(x).sum()
                if self.amp:
                    self.scaler.scale(loss).backward()
                    self.scaler.step(self.opt)
                    self.scaler.update()
                else:
                    loss.backward()
                    self.opt.step()
""",
)
program(
    "a helper's scaler that one caller does not give",
    """
    def run(model, opt, loader, mode, scaler=None):
        for x in loader:
            loss = model(x).sum()
            if mode == "train":
                scaler.scale(loss).backward()
                scaler.step(opt)
                scaler.update()

    def main(model, opt, loader):
        scaler = GradScaler("cpu")
        run(model, opt, loader, "train", scaler)
        run(model, opt, loader, "val")
""",
)
program(
    "objects that step an optimizer in ways of their own are no scalers",
    """
    class Full:
        def backward(self, loss):
            loss.backward()

        def step(self, opt, params, clip):
            clip_grad_norm_(params, clip)
            opt.step()

    class Half:
        def __init__(self):
            self.scaler = GradScaler("cpu")

        def backward(self, loss):
            self.scaler.scale(loss).backward()

        def step(self, opt, params, clip):
            self.scaler.unscale_(opt)
            clip_grad_norm_(params, clip)
            self.scaler.step(opt)
            self.scaler.update()

    for precision in (Full(), Half()):
        opt = torch.optim.SGD(model.parameters(), lr=0.1)
        for x in data:
            opt.zero_grad()
            precision.backward(model(x).mean())
            precision.step(opt, model.parameters(), 1.0)
""",
)
program(
    "a helper knows by its callers that it has a scaler",
    """
    def finish(gs, o):
        gs.step(o)  # !missing-update

    def train(model, loader):
        o = torch.optim.SGD(model.parameters(), lr=0.1)
        gs = GradScaler("cpu")
        for x in loader:
            o.zero_grad()
            gs.scale(model(x).mean()).backward()
            finish(gs, o)
""",
)
program(
    "an update is skipped, and the next iteration asks for its boundary at once",
    """
    def train(model, opt, loader, acc):
        scaler = GradScaler("cpu")
        for i, x in enumerate(loader):
            boundary = (i + 1) % acc == 0
            sync = contextlib.nullcontext() if boundary else model.no_sync()
            with sync:
                scaler.scale(model(x).mean() / acc).backward()
            if boundary:
                scaler.unscale_(opt)  # !update-skipped-on-path
                norm = clip_grad_norm_(model.parameters(), 1.0)
                if norm > 5:
                    continue
                scaler.step(opt)
                scaler.update()
                opt.zero_grad()
""",
)
program(
    "a class in timm's manner without update, and a function that calls it",
    """
    class NativeScaler:
        def __init__(self):
            self._scaler = GradScaler("cpu")

        def __call__(self, loss, optimizer, clip_grad=None, parameters=None, create_graph=False, update_grad=True):
            self._scaler.scale(loss).backward(create_graph=create_graph)
            if update_grad:
                if clip_grad is not None:
                    self._scaler.unscale_(optimizer)
                    clip_grad_norm_(parameters, clip_grad)
                self._scaler.step(optimizer)  # !missing-update

    def train(model, loader, optimizer, loss_scaler):
        for i, x in enumerate(loader):
            loss = model(x).mean()
            loss_scaler(loss, optimizer, clip_grad=1.0, parameters=model.parameters(), update_grad=(i + 1) % 2 == 0)
            if (i + 1) % 2 == 0:
                optimizer.zero_grad()
""",
)
program(
    "gradients of cached representations carry the scale into a second loss",
    """
    def train(model, opt, loader):
        scaler = GradScaler("cpu")
        for x in loader:
            opt.zero_grad()
            with torch.no_grad():
                reps = model(x)
            reps = reps.detach().requires_grad_()
            scaler.scale(reps.pow(2).mean()).backward()
            cache = reps.grad
            if cache is None:
                continue
            surrogate = (model(x) * cache.detach()).sum()
            surrogate.backward()
            scaler.step(opt)
            scaler.update()
""",
)
program(
    "two scalers in a try, and one of them is not always updated",
    """
    def finish(opt_b, scaler_b):
        scaler_b.step(opt_b)  # !update-skipped-on-path

    def train(model, opt, model_b, opt_b, loader, loss_fn, flag):
        scaler = GradScaler("cpu")
        scaler_b = GradScaler("cpu")
        for epoch in range(2):
            for x, y in loader:
                try:
                    opt_b.zero_grad()
                    loss_b = loss_fn(model_b(model(x).detach()), y)
                    scaler_b.scale(loss_b).backward()
                    finish(opt_b, scaler_b)
                    if flag:
                        scaler_b.update()
                    opt.zero_grad()
                    scaler.scale(loss_fn(model_b(model(x)), y)).backward()
                    scaler.step(opt)
                    scaler.update()
                except Exception as error:
                    continue
""",
)
