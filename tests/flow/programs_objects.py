"""More programs: objects, helpers, classes, closures, several optimizers, regions."""

from __future__ import annotations

from tests.flow.programs import program

# -- helpers, closures, classes ---------------------------------------------------------------------------------------

program(
    "methods of a class share self.scaler",
    """
    class Trainer:
        def __init__(self, model, opt):
            self.model, self.opt = model, opt
            self.scaler = GradScaler()

        def clip(self):
            self.scaler.unscale_(self.opt)
            clip_grad_norm_(self.model.parameters(), 1.0)

        def step(self, loss):
            self.opt.zero_grad()
            self.scaler.scale(loss).backward()
            self.clip()
            self.scaler.step(self.opt)
            self.scaler.update()
""",
)
program(
    "a helper method clips scaled gradients",
    """
    class Trainer:
        def __init__(self, model, opt):
            self.model, self.opt = model, opt
            self.gs = torch.cuda.amp.GradScaler()

        def clip(self):
            clip_grad_norm_(self.model.parameters(), 1.0)

        def step(self, loss):
            self.opt.zero_grad()
            self.gs.scale(loss).backward()
            self.clip()  # !clip-before-unscale
            self.gs.step(self.opt)
            self.gs.update()
""",
)
program(
    "the methods of a base class in the same file",
    """
    class Base:
        def __init__(self, opt):
            self.opt = opt
            self.scaler = GradScaler()

        def finish(self):
            self.scaler.step(self.opt)
            self.scaler.update()

    class Trainer(Base):
        def fit(self, loader, loss_fn):
            for x in loader:
                self.opt.zero_grad()
                self.scaler.scale(loss_fn(x)).backward()
                self.finish()
                self.opt.step()  # !double-step
""",
)
program(
    "a method holds a whole iteration, and the loop is elsewhere",
    """
    class Trainer:
        def __init__(self, opt):
            self.opt = opt
            self.scaler = GradScaler()

        def train_step(self, x):
            self.opt.zero_grad()
            self.scaler.scale(self.loss(x)).backward()
            self.scaler.unscale_(self.opt)  # !update-skipped-on-path
            if not torch.isfinite(self.norm):
                return
            self.scaler.step(self.opt)
            self.scaler.update()
""",
)
program(
    "the update is in another method",
    """
    class Trainer:
        def __init__(self, opt):
            self.opt = opt
            self.scaler = GradScaler()

        def train_step(self, x):
            self.opt.zero_grad()
            self.scaler.scale(self.loss(x)).backward()
            self.scaler.step(self.opt)

        def on_train_batch_end(self):
            self.scaler.update()
""",
)
program(
    "a helper function that is not wrong by itself",
    """
    def clip(scaler, opt, model):
        scaler.unscale_(opt)
        clip_grad_norm_(model.parameters(), 1.0)

    def train(model, opt, loader, loss_fn):
        scaler = GradScaler()
        for x, y in loader:
            opt.zero_grad()
            scaler.scale(loss_fn(model(x), y)).backward()
            scaler.unscale_(opt)
            clip(scaler, opt, model)  # !unscale-twice
            scaler.step(opt)
            scaler.update()
""",
)
program(
    "a guard on a field of an argument, in a helper and its caller",
    """
    def step(model, x, loss_fn, scaler, a):
        if a.fp16:
            if a.amp == "pytorch":
                scaler.scale(loss_fn(model(x))).backward()
            elif a.amp == "apex":
                pass
        else:
            loss_fn(model(x)).backward()

    def train(model, opt, loader, loss_fn, scaler, args):
        for x in loader:
            opt.zero_grad()
            for i in range(args.chunks):
                step(model, x, loss_fn, scaler, args)
            if args.fp16:
                if args.amp == "pytorch":
                    scaler.unscale_(opt)
                    clip_grad_norm_(model.parameters(), 1.0)
            else:
                clip_grad_norm_(model.parameters(), 1.0)
            if args.fp16 and args.amp == "pytorch":
                scaler.step(opt)
                scaler.update()
            else:
                opt.step()
""",
)
program(
    "a closure as the training step",
    """
    def main(model, opt, loader, loss_fn):
        scaler = GradScaler()

        def step(x):
            opt.zero_grad()
            scaler.scale(loss_fn(model(x))).backward()
            clip_grad_norm_(model.parameters(), 1.0)  # !clip-before-unscale
            scaler.step(opt)
            scaler.update()

        for x in loader:
            step(x)
""",
)
program(
    "a partial of the clip",
    """
    clip = functools.partial(clip_grad_norm_, max_norm=1.0)

    def train(model, opt, loader, loss_fn):
        scaler = GradScaler()
        for x in loader:
            opt.zero_grad()
            scaler.scale(loss_fn(model(x))).backward()
            clip(model.parameters())  # !clip-before-unscale
            scaler.step(opt)
            scaler.update()
""",
)
program(
    "a lambda clips",
    """
    def train(model, opt, loader, loss_fn):
        scaler = GradScaler()
        clip = lambda: clip_grad_norm_(model.parameters(), 1.0)
        for x in loader:
            opt.zero_grad()
            scaler.scale(loss_fn(model(x))).backward()
            clip()  # !clip-before-unscale
            scaler.step(opt)
            scaler.update()
""",
)
program(
    "an unknown callee gets the scaler",
    """
    from engine import clip_everything

    def train(model, opt, loader, loss_fn):
        scaler = GradScaler()
        for x in loader:
            scaler.scale(loss_fn(model(x))).backward()
            clip_everything(model, scaler, opt)
            clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(opt)
""",
)
program(
    "a helper that starts in the middle of the protocol",
    """
    def finish(scaler, opt, model):
        clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(opt)
        scaler.update()
""",
)
program(
    "a callable wrapper with a flag",
    """
    class Scaler:
        def __init__(self):
            self._scaler = GradScaler()

        def __call__(self, loss, opt, parameters, clip=None, need_update=True):
            self._scaler.scale(loss).backward()
            if need_update:
                if clip is not None:
                    self._scaler.unscale_(opt)
                    clip_grad_norm_(parameters, clip)
                self._scaler.step(opt)
                self._scaler.update()

    def train(model, opt, loader, loss_fn, accum):
        loss_scaler = Scaler()
        for i, x in enumerate(loader):
            last = (i + 1) % accum == 0
            loss_scaler(loss_fn(model(x)), opt, model.parameters(), clip=1.0, need_update=last)
            if last:
                opt.zero_grad()
""",
)
program(
    "a subclass of GradScaler",
    """
    class MyScaler(GradScaler):
        def unscale_(self, optimizer):
            return None

    def train(model, opt, loader, loss_fn):
        scaler = MyScaler()
        for x in loader:
            opt.zero_grad()
            scaler.scale(loss_fn(model(x))).backward()
            clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(opt)
            scaler.update()
""",
)
program(
    "a script under __main__",
    """
    model = torch.nn.Linear(2, 2)
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.cuda.amp.GradScaler()
    if __name__ == "__main__":
        for x in range(3):
            opt.zero_grad()
            scaler.scale(model(x).sum()).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # !clip-before-unscale
            scaler.step(opt)
            scaler.update()
""",
)
program(
    "names without a hint",
    """
    def train(net, o, data, f, g):
        for x in data:
            o.zero_grad()
            g.scale(f(net(x))).backward()
            clip_grad_norm_(net.parameters(), 1.0)  # !clip-before-unscale
            g.step(o)
            g.update()
""",
)
program(
    "a dataclass field and a dict item",
    """
    import dataclasses

    @dataclasses.dataclass
    class State:
        opt: torch.optim.Optimizer
        grad: GradScaler

        def train(self, model, loader, loss_fn):
            for x in loader:
                self.opt.zero_grad()
                self.grad.scale(loss_fn(model(x))).backward()
                self.opt.step()  # !step-bypasses-scaler
                self.grad.update()

    def train(model, opt, loader, loss_fn):
        parts = {"scaler": GradScaler(), "opt": opt}
        for x in loader:
            parts["opt"].zero_grad()
            parts["scaler"].scale(loss_fn(model(x))).backward()
            parts["scaler"].unscale_(parts["opt"])
            parts["scaler"].unscale_(parts["opt"])  # !unscale-twice
            parts["scaler"].step(parts["opt"])
            parts["scaler"].update()
""",
)
program(
    "async, generators and walrus",
    """
    async def train(model, opt, loader, loss_fn):
        scaler = GradScaler()
        async for x in loader:
            opt.zero_grad()
            scaler.scale(loss := loss_fn(await model(x))).backward()
            if (norm := loss.item()) > 3:
                scaler.unscale_(opt)
                clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(opt)
            scaler.update()

    def steps(model, opt, loader, loss_fn):
        scaler = GradScaler()
        for x in loader:
            opt.zero_grad()
            scaler.scale(loss_fn(model(x))).backward()
            scaler.step(opt)  # !missing-update
            yield x
""",
)
program(
    "the scaler is made anew for every epoch",
    """
    def train_one_epoch(model, opt, loader, loss_fn):
        scaler = GradScaler()  # !scaler-in-loop
        for x in loader:
            opt.zero_grad()
            scaler.scale(loss_fn(model(x))).backward()
            scaler.step(opt)
            scaler.update()
""",
)
program(
    "the scaler is made anew for every batch",
    """
    def train(model, opt, loader, loss_fn):
        for x in loader:
            scaler = GradScaler()  # !scaler-in-loop
            opt.zero_grad()
            scaler.scale(loss_fn(model(x))).backward()
            scaler.step(opt)
            scaler.update()
""",
)
program(
    "a new run for every fold",
    """
    def train(make_model, folds, loss_fn):
        for loader in folds:
            model = make_model()
            opt = torch.optim.Adam(model.parameters())
            scaler = GradScaler()
            for x in loader:
                opt.zero_grad()
                scaler.scale(loss_fn(model(x))).backward()
                scaler.step(opt)
                scaler.update()
""",
)

# -- several optimizers and scalers -----------------------------------------------------------------------------------

program(
    "two optimizers, one scaler",
    """
    def train(g, d, opt_g, opt_d, loader):
        scaler = GradScaler()
        for x in loader:
            opt_d.zero_grad()
            scaler.scale(d(x).mean()).backward()
            scaler.unscale_(opt_d)
            clip_grad_norm_(d.parameters(), 1.0)
            scaler.step(opt_d)
            opt_g.zero_grad()
            scaler.scale(d(g(x)).mean()).backward()
            scaler.unscale_(opt_g)
            clip_grad_norm_(g.parameters(), 1.0)
            scaler.step(opt_g)
            scaler.update()
""",
)
program(
    "two optimizers, and the second is clipped while scaled",
    """
    def train(g, d, opt_g, opt_d, loader):
        scaler = GradScaler()
        for x in loader:
            opt_d.zero_grad()
            scaler.scale(d(x).mean()).backward()
            scaler.unscale_(opt_d)
            clip_grad_norm_(d.parameters(), 1.0)
            scaler.step(opt_d)
            opt_g.zero_grad()
            scaler.scale(d(g(x)).mean()).backward()
            clip_grad_norm_(g.parameters(), 1.0)  # !clip-before-unscale
            scaler.step(opt_g)
            scaler.update()
""",
)
program(
    "update between two optimizers of one backward",
    """
    def train(model, opt_a, opt_b, loader):
        scaler = GradScaler()
        for x in loader:
            opt_a.zero_grad()
            opt_b.zero_grad()
            scaler.scale(model(x).mean()).backward()
            scaler.step(opt_a)
            scaler.update()  # !update-between-optimizers
            scaler.step(opt_b)
            scaler.update()
""",
)
program(
    "each optimizer has a backward of its own after the last update",
    """
    def train(g, d, opt_g, opt_d, loader):
        scaler = GradScaler()
        for x in loader:
            opt_d.zero_grad()
            scaler.scale(d(x).mean()).backward()
            scaler.step(opt_d)
            scaler.update()
            opt_g.zero_grad()
            scaler.scale(d(g(x)).mean()).backward()
            scaler.step(opt_g)
            scaler.update()
""",
)
program(
    "a list of optimizers stepped in a loop, a comprehension and by number",
    """
    def train(model, opts, loader, loss_fn):
        scaler = GradScaler()
        for x in loader:
            [o.zero_grad() for o in opts]
            scaler.scale(loss_fn(model(x))).backward()
            for opt in opts:
                scaler.unscale_(opt)
            clip_grad_norm_(model.parameters(), 1.0)
            for i in range(len(opts)):
                scaler.step(opts[i])
            scaler.update()
""",
)
program(
    "a list of optimizers without update",
    """
    def train(model, opts, loader, loss_fn):
        scaler = GradScaler()
        for x in loader:
            scaler.scale(loss_fn(model(x))).backward()
            for opt in opts:
                scaler.step(opt)  # !missing-update
                opt.zero_grad()
""",
)
program(
    "a scaler for each optimizer",
    """
    def train(g, d, opt_g, opt_d, loader):
        scaler_g, scaler_d = GradScaler(), GradScaler()
        for x in loader:
            opt_d.zero_grad()
            scaler_d.scale(d(x).mean()).backward()
            scaler_d.step(opt_d)
            scaler_d.update()
            opt_g.zero_grad()
            scaler_g.scale(d(g(x)).mean()).backward()
            scaler_g.unscale_(opt_g)
            clip_grad_norm_(g.parameters(), 1.0)
            scaler_g.step(opt_g)
            scaler_g.update()
""",
)
program(
    "unscale_ on the wrapper, step on what it wraps",
    """
    def train(model, inner, loader, loss_fn, Wrapper):
        outer = Wrapper(inner)
        scaler = GradScaler()
        for x in loader:
            inner.zero_grad()
            scaler.scale(loss_fn(model(x))).backward()
            scaler.unscale_(outer)  # !optimizer-identity
            scaler.step(inner)
            scaler.update()
""",
)
program(
    "one of two losses is not scaled",
    """
    def train(model, opt, loader, first, second):
        scaler = GradScaler()
        for x in loader:
            opt.zero_grad()
            out = model(x)
            scaler.scale(first(out)).backward(retain_graph=True)
            second(out).backward()  # !unscaled-backward
            scaler.step(opt)
            scaler.update()
""",
)
program(
    "a fixed multiplier with an optimizer that does not feel it",
    """
    def train(model, loader, loss_fn):
        opt = torch.optim.Adam(model.parameters())
        scaler = GradScaler(init_scale=1024.0)
        for x in loader:
            opt.zero_grad()
            scaler.scale(loss_fn(model(x))).backward()
            opt.step()
""",
)
program(
    "a fixed multiplier with SGD",
    """
    def train(model, loader, loss_fn):
        opt = torch.optim.SGD(model.parameters(), lr=0.1)
        scaler = GradScaler(init_scale=1024.0)
        for x in loader:
            opt.zero_grad()
            scaler.scale(loss_fn(model(x))).backward()
            opt.step()  # !step-bypasses-scaler
""",
)
program(
    "gradients are zeroed in one arm only",
    """
    def finish(scaler, opt, loss, amp):
        if amp:
            scaler.scale(loss).backward()
            scaler.step(opt)  # !zero-grad-missing-on-path
            scaler.update()
        else:
            loss.backward()
            opt.step()
            opt.zero_grad()
""",
)

# -- regions ----------------------------------------------------------------------------------------------------------

program(
    "backward inside the region",
    """
    def train(model, opt, loader, loss_fn):
        scaler = GradScaler()
        for x, y in loader:
            opt.zero_grad()
            with torch.autocast("cuda", dtype=torch.float16), torch.enable_grad():
                loss = loss_fn(model(x), y)
                scaler.scale(loss).backward()  # !backward-in-autocast
            scaler.step(opt)
            scaler.update()
""",
)
program(
    "a region that is a variable, nullcontext in one arm",
    """
    def train(model, opt, loader, loss_fn, amp):
        ctx = torch.autocast("cuda", dtype=torch.bfloat16) if amp else contextlib.nullcontext()
        for x in loader:
            opt.zero_grad()
            with ctx:
                loss = loss_fn(model(x))
            loss.backward()
            opt.step()
""",
)
program(
    "nullcontext, suppress and a disabled region",
    """
    def train(model, opt, loader, loss_fn):
        for x in loader:
            opt.zero_grad()
            with contextlib.nullcontext(), contextlib.suppress(ValueError), autocast("cuda", enabled=False):
                loss_fn(model(x)).backward()
            opt.step()
""",
)
program(
    "the whole loop in one region",
    """
    def train(model, opt, loader, loss_fn):
        with autocast("cuda", dtype=torch.bfloat16):
            for x in loader:
                opt.zero_grad()
                loss_fn(model(x)).backward()  # !backward-in-autocast
                opt.step()  # !step-in-autocast
""",
)
program(
    "the decorated training function",
    """
    @autocast("cuda", dtype=torch.bfloat16)
    def train(model, opt, loader, loss_fn):
        for x in loader:
            opt.zero_grad()
            loss_fn(model(x)).backward()  # !backward-in-autocast
            opt.step()  # !step-in-autocast
""",
)
program(
    "an ExitStack holds the region",
    """
    def train(model, opt, loader, loss_fn):
        for x in loader:
            opt.zero_grad()
            with contextlib.ExitStack() as stack:
                stack.enter_context(autocast("cuda", dtype=torch.bfloat16))
                loss = loss_fn(model(x))
                loss.backward()  # !backward-in-autocast
            opt.step()
            loss.backward()
""",
)
program(
    "a helper differentiates inside the caller's region",
    """
    def back(loss):
        loss.backward()

    def train(model, opt, loader, loss_fn):
        for x in loader:
            opt.zero_grad()
            with autocast("cuda", dtype=torch.bfloat16):
                back(loss_fn(model(x)))  # !backward-in-autocast
            opt.step()
""",
)
program(
    "only a step inside the region",
    """
    def train(model, opt, loader, loss_fn):
        for x in loader:
            opt.zero_grad()
            loss_fn(model(x)).backward()
            with autocast("cuda", dtype=torch.bfloat16):
                opt.step()  # !step-in-autocast
""",
)
program(
    "an object around an optimizer, under its name, steps it by the scaler that it gets",
    """
    class Warmup:
        def __init__(self, inner):
            self.inner = inner

        def step(self, scaler):
            scaler.step(self.inner)
            scaler.update()

    def train(model, loader, loss_fn):
        opt = torch.optim.SGD(model.parameters(), lr=0.1)
        opt = Warmup(opt)
        s = GradScaler()
        for x in loader:
            model.zero_grad()
            s.scale(loss_fn(model(x))).backward()
            opt.step(s)
""",
)
