"""Still more programs: variations on what real loops do, right and wrong."""

from __future__ import annotations

from tests.flow.programs import program

program(
    "no_sync closures",
    """
    def train(model, opt, loader, loss_fn, accum, rank):
        scaler = GradScaler()
        for i, (x, y) in enumerate(loader):
            sync = (i + 1) % accum == 0
            ctx = contextlib.nullcontext() if sync else model.no_sync()
            with ctx:
                with autocast("cuda", dtype=torch.float16):
                    loss = loss_fn(model(x), y) / accum
                scaler.scale(loss).backward()
            if not sync:
                continue
            scaler.unscale_(opt)
            clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(opt)
            scaler.update()
            opt.zero_grad(set_to_none=True)
""",
)
program(
    "grad inspected after unscale and before",
    """
    def train(model, opt, loader, loss_fn):
        scaler = GradScaler()
        for x in loader:
            opt.zero_grad()
            scaler.scale(loss_fn(model(x))).backward()
            scaler.unscale_(opt)
            total = 0
            for p in model.parameters():
                if p.grad is not None:
                    total += p.grad.data.norm(2).item() ** 2
            scaler.step(opt)
            scaler.update()
""",
)
program(
    "eval between",
    """
    def train(model, opt, sched, loader, val, loss_fn, epochs, amp):
        scaler = torch.cuda.amp.GradScaler(enabled=amp)
        best = 0
        for e in range(epochs):
            model.train()
            for x, y in loader:
                opt.zero_grad()
                with torch.cuda.amp.autocast(enabled=amp):
                    loss = loss_fn(model(x), y)
                scaler.scale(loss).backward()
                scaler.step(opt)
                scale = scaler.get_scale()
                scaler.update()
                if scale <= scaler.get_scale():
                    sched.step()
            acc = evaluate(model, val)
            if acc > best:
                torch.save({"model": model.state_dict(), "scaler": scaler.state_dict()}, "x.pt")
""",
)
program(
    "a penalty on some rounds only",
    """
    def train(G, D, g_opt, d_opt, loader, r1_every):
        scaler = GradScaler()
        for i, real in enumerate(loader):
            d_opt.zero_grad(set_to_none=True)
            with autocast("cuda"):
                fake = G(noise())
                d_loss = adv(D(fake.detach()), D(real))
            scaler.scale(d_loss).backward()
            if i % r1_every == 0:
                real.requires_grad_(True)
                with autocast("cuda", enabled=False):
                    out = D(real.float())
                    grad = torch.autograd.grad(out.sum(), real, create_graph=True)[0]
                    r1 = grad.pow(2).sum()
                scaler.scale(r1).backward()
            scaler.step(d_opt)
            g_opt.zero_grad(set_to_none=True)
            with autocast("cuda"):
                g_loss = adv_g(D(G(noise())))
            scaler.scale(g_loss).backward()
            scaler.step(g_opt)
            scaler.update()
""",
)
program(
    "one optimizer through the scaler, the other without",
    """
    def train(model, opt, other, loader, loss_fn):
        scaler = GradScaler()
        for x in loader:
            opt.zero_grad()
            other.zero_grad()
            scaler.scale(loss_fn(model(x))).backward()
            scaler.step(opt)
            scaler.update()
            aux = aux_loss(x)
            aux.backward()
            other.step()
""",
)
program(
    "optional scaler attr flags",
    """
    class T:
        def __init__(self, model, opt, fp16, clip):
            self.model, self.opt, self.fp16, self.clip = model, opt, fp16, clip
            self.scaler = GradScaler() if fp16 else None
        def fit(self, loader, loss_fn):
            for x in loader:
                self.opt.zero_grad()
                loss = self.compute(x)
                if self.fp16:
                    self.scaler.scale(loss).backward()
                else:
                    loss.backward()
                self.optim_step()
        def compute(self, x):
            with autocast("cuda", enabled=self.fp16):
                return self.model(x).mean()
        def optim_step(self):
            if self.scaler is not None:
                self.scaler.unscale_(self.opt)
            if self.clip:
                clip_grad_norm_(self.model.parameters(), self.clip)
            if self.scaler is not None:
                self.scaler.step(self.opt)
                self.scaler.update()
            else:
                self.opt.step()
""",
)
program(
    "optim_step forgets unscale",
    """
    class T:
        def __init__(self, model, opt, fp16, clip):
            self.model, self.opt, self.fp16, self.clip = model, opt, fp16, clip
            self.scaler = GradScaler() if fp16 else None
        def fit(self, loader, loss_fn):
            for x in loader:
                self.opt.zero_grad()
                loss = self.model(x)
                if self.fp16:
                    self.scaler.scale(loss).backward()
                else:
                    loss.backward()
                self.optim_step()  # !clip-before-unscale
        def optim_step(self):
            if self.clip:
                clip_grad_norm_(self.model.parameters(), self.clip)
            if self.scaler is not None:
                self.scaler.step(self.opt)
                self.scaler.update()
            else:
                self.opt.step()
""",
)
program(
    "counter accumulation",
    """
    def train(model, opt, loader, loss_fn, accum):
        scaler = GradScaler()
        steps = 0
        opt.zero_grad()
        for x in loader:
            scaler.scale(loss_fn(model(x)) / accum).backward()
            steps += 1
            if steps == accum:
                scaler.unscale_(opt)
                clip_grad_norm_(model.parameters(), 1.0)
                scaler.step(opt)
                scaler.update()
                opt.zero_grad()
                steps = 0
        if steps:
            scaler.step(opt)
            scaler.update()
""",
)
program(
    "inner micro loop",
    """
    def train(model, opt, batches, loss_fn, accum):
        scaler = torch.cuda.amp.GradScaler()
        while True:
            opt.zero_grad()
            for micro in range(accum):
                with autocast("cuda"):
                    loss = loss_fn(model(next(batches))) / accum
                scaler.scale(loss).backward()
            scaler.unscale_(opt)
            clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(opt)
            scaler.update()
""",
)
program(
    "a handler for lack of memory",
    """
    def train(model, opt, loader, loss_fn):
        scaler = GradScaler()
        for x in loader:
            try:
                with autocast("cuda"):
                    loss = loss_fn(model(x))
                opt.zero_grad()
                scaler.scale(loss).backward()
                scaler.unscale_(opt)
                norm = clip_grad_norm_(model.parameters(), 1.0)
                scaler.step(opt)
                scaler.update()
                logger.info("norm %s", norm)
            except RuntimeError as e:
                if "out of memory" in str(e):
                    torch.cuda.empty_cache()
                    continue
                raise
""",
)
program(
    "skip with update",
    """
    def train(model, opt, loader, loss_fn, limit):
        scaler = GradScaler()
        for x in loader:
            opt.zero_grad()
            scaler.scale(loss_fn(model(x))).backward()
            scaler.unscale_(opt)
            norm = clip_grad_norm_(model.parameters(), 1.0)
            if torch.isfinite(norm) and norm < limit:
                scaler.step(opt)
            else:
                opt.zero_grad()
            scaler.update()
""",
)
program(
    "optimizer dict",
    """
    class M:
        def __init__(self, opts):
            self.opts = opts
            self.scaler = GradScaler()
        def step(self, loss):
            for o in self.opts.values():
                o.zero_grad()
            self.scaler.scale(loss).backward()
            for name, o in self.opts.items():
                self.scaler.unscale_(o)
            clip_grad_norm_(self.parameters(), 1.0)
            for name, o in self.opts.items():
                self.scaler.step(o)
            self.scaler.update()
""",
)
program(
    "two optimizers warmup flag",
    """
    def train(model, opt, opt2, loader, loss_fn, warm):
        scaler = GradScaler()
        for i, x in enumerate(loader):
            opt.zero_grad()
            opt2.zero_grad()
            scaler.scale(loss_fn(model(x))).backward()
            scaler.step(opt)
            if i > warm:
                scaler.step(opt2)
            scaler.update()
""",
)
program(
    "three ways to train, by one option",
    """
    def train(model, opt, loader, loss_fn, args):
        scaler = None
        if args.amp == "native":
            scaler = GradScaler()
        for x in loader:
            opt.zero_grad()
            loss = loss_fn(model(x))
            if args.amp == "native":
                scaler.scale(loss).backward()
                scaler.unscale_(opt)
                clip_grad_norm_(model.parameters(), 1.0)
                scaler.step(opt)
                scaler.update()
            elif args.amp == "apex":
                with amp.scale_loss(loss, opt) as scaled:
                    scaled.backward()
                clip_grad_norm_(amp.master_params(opt), 1.0)
                opt.step()
            else:
                loss.backward()
                clip_grad_norm_(model.parameters(), 1.0)
                opt.step()
""",
)
program(
    "early return on flag",
    """
    def backward_and_step(loss, opt, scaler, model, amp, clip):
        if not amp:
            loss.backward()
            clip_grad_norm_(model.parameters(), clip)
            opt.step()
            return
        scaler.scale(loss).backward()
        scaler.unscale_(opt)
        clip_grad_norm_(model.parameters(), clip)
        scaler.step(opt)
        scaler.update()
""",
)
program(
    "contextmanager amp",
    """
    @contextlib.contextmanager
    def maybe_amp(on):
        if on:
            with autocast("cuda"):
                yield
        else:
            yield
    def train(model, opt, loader, loss_fn, on):
        for x in loader:
            opt.zero_grad()
            with maybe_amp(on):
                loss = loss_fn(model(x))
                loss.backward()  # !backward-in-autocast
            opt.step()
""",
)
program(
    "scaler tuple return",
    """
    def build(model, amp):
        opt = torch.optim.AdamW(model.parameters())
        scaler = GradScaler(enabled=amp)
        return opt, scaler
    def main(model, loader, loss_fn, amp):
        opt, scaler = build(model, amp)
        for x in loader:
            opt.zero_grad()
            scaler.scale(loss_fn(model(x))).backward()
            clip_grad_norm_(model.parameters(), 1.0)  # !clip-before-unscale
            scaler.step(opt)
            scaler.update()
""",
)
program(
    "two phases with an update each",
    """
    def train(model, opt, loader, loss_fn):
        scaler = GradScaler()
        for x in loader:
            scaler.scale(loss_fn(model(x))).backward()
            scaler.unscale_(opt)
            opt.first_step(zero_grad=True)
            scaler.update()
            scaler.scale(loss_fn(model(x))).backward()
            scaler.unscale_(opt)
            opt.second_step(zero_grad=True)
            scaler.update()
""",
)
program(
    "the second network trains without the scaler",
    """
    def train(G, D, g_opt, d_opt, loader):
        scaler = GradScaler()
        for x in loader:
            with autocast("cuda"):
                g_loss = D(G(x)).mean()
            g_opt.zero_grad()
            scaler.scale(g_loss).backward()
            scaler.step(g_opt)
            scaler.update()
            d_loss = D(x).mean()
            d_opt.zero_grad()
            d_loss.backward()
            d_opt.step()
""",
)
program(
    "plain D forgot scaler step for g",
    """
    def train(G, D, g_opt, d_opt, loader):
        scaler = GradScaler()
        for x in loader:
            g_opt.zero_grad()
            scaler.scale(D(G(x)).mean()).backward()
            scaler.step(g_opt)
            d_opt.zero_grad()
            scaler.scale(D(x).mean()).backward()
            d_opt.step()  # !step-bypasses-scaler
            scaler.update()
""",
)
program(
    "update conditional via helper",
    """
    def step(scaler, opt, do):
        scaler.step(opt)
        if do:
            scaler.update()
    def train(model, opt, loader, loss_fn):
        scaler = GradScaler()
        for x in loader:
            opt.zero_grad()
            scaler.scale(loss_fn(model(x))).backward()
            step(scaler, opt, True)
""",
)
program(
    "scale after step to log",
    """
    def train(model, opt, loader, loss_fn, writer):
        scaler = GradScaler()
        for x in loader:
            opt.zero_grad()
            loss = loss_fn(model(x))
            scaler.scale(loss).backward()
            scaler.step(opt)
            scaler.update()
            for n, p in model.named_parameters():
                writer.add_histogram(n, p.grad.norm())
""",
)
program(
    "clip helper method with scaler arg",
    """
    class T:
        def clip(self, scaler, opt):
            scaler.unscale_(opt)
            clip_grad_norm_(self.model.parameters(), 1.0)
        def fit(self, loader, opt, scaler):
            for x in loader:
                opt.zero_grad()
                scaler.scale(self.model(x)).backward()
                self.clip(scaler, opt)
                scaler.step(opt)
                scaler.update()
""",
)
program(
    "a break between step and update",
    """
    def train(model, opt, loader, loss_fn, stop):
        scaler = GradScaler()
        for x in loader:
            opt.zero_grad()
            scaler.scale(loss_fn(model(x))).backward()
            scaler.step(opt)
            if stop():
                break
            scaler.update()
        else:
            print("done")
""",
)
program(
    "zero_grad every iteration with accumulation",
    """
    def train(model, opt, loader, loss_fn, accum):
        scaler = GradScaler()
        for i, x in enumerate(loader):
            if i % accum == 0:
                opt.zero_grad()
            scaler.scale(loss_fn(model(x))).backward()
            if (i + 1) % accum == 0:
                scaler.step(opt)
                scaler.update()
""",
)
program(
    "scaler from dict cfg",
    """
    def train(model, opt, loader, loss_fn, state):
        for x in loader:
            opt.zero_grad()
            loss = loss_fn(model(x))
            if state.get("scaler"):
                state["scaler"].scale(loss).backward()
                state["scaler"].step(opt)
                state["scaler"].update()
            else:
                loss.backward()
                opt.step()
""",
)
program(
    "list of scalers",
    """
    def train(models, opts, loader):
        scalers = [GradScaler() for _ in models]
        for x in loader:
            for m, o, s in zip(models, opts, scalers):
                o.zero_grad()
                s.scale(m(x)).backward()
                s.unscale_(o)
                clip_grad_norm_(m.parameters(), 1.0)
                s.step(o)
                s.update()
""",
)
program(
    "list of scalers bad",
    """
    def train(models, opts, loader):
        scalers = [GradScaler() for _ in models]
        for x in loader:
            for m, o, s in zip(models, opts, scalers):
                o.zero_grad()
                s.scale(m(x)).backward()
                clip_grad_norm_(m.parameters(), 1.0)  # !clip-before-unscale
                s.step(o)
                s.update()
""",
)
program(
    "losses tuple",
    """
    def train(model, opt, loader):
        scaler = GradScaler()
        for x in loader:
            opt.zero_grad()
            a, b = model(x)
            for l in (a, b):
                scaler.scale(l).backward(retain_graph=True)
            scaler.step(opt)
            scaler.update()
""",
)
program(
    "scaled list",
    """
    def train(model, opt, loader):
        scaler = GradScaler()
        for x in loader:
            opt.zero_grad()
            losses = model(x)
            scaled = [scaler.scale(l) for l in losses]
            for l in scaled:
                l.backward()
            scaler.step(opt)
            scaler.update()
""",
)
program(
    "unscaled with autograd.backward",
    """
    def train(model, opt, loader):
        scaler = GradScaler()
        for x in loader:
            opt.zero_grad()
            loss = model(x)
            torch.autograd.backward(loss)  # !unscaled-backward
            scaler.step(opt)
            scaler.update()
""",
)
program(
    "try import fallback",
    """
    try:
        from torch.cuda.amp import GradScaler
    except ImportError:
        class GradScaler:
            def __init__(self): pass
            def scale(self, l): return l
            def unscale_(self, o): pass
            def step(self, o): o.step()
            def update(self): pass
    def train(args, model, loader):
        optimizer, scheduler = fetch(args, model)
        scaler = GradScaler(enabled=args.mixed)
        for x in loader:
            optimizer.zero_grad()
            scaler.scale(model(x)).backward()
            scaler.unscale_(optimizer)
            clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scheduler.step()
            scaler.update()
""",
)
program(
    "try import fallback bad",
    """
    try:
        from torch.cuda.amp import GradScaler
    except ImportError:
        class GradScaler:
            def __init__(self): pass
            def scale(self, l): return l
            def unscale_(self, o): pass
            def step(self, o): o.step()
            def update(self): pass
    def train(args, model, loader):
        optimizer, scheduler = fetch(args, model)
        scaler = GradScaler(enabled=args.mixed)
        for x in loader:
            optimizer.zero_grad()
            scaler.scale(model(x)).backward()
            clip_grad_norm_(model.parameters(), 1.0)  # !clip-before-unscale
            scaler.step(optimizer)
            scheduler.step()
            scaler.update()
""",
)
program(
    "step closure lbfgs plain",
    """
    def train(model, opt, loader, loss_fn):
        for x in loader:
            def closure():
                opt.zero_grad()
                loss = loss_fn(model(x))
                loss.backward()
                return loss
            opt.step(closure)
""",
)
program(
    "recursion",
    """
    def fit(model, opt, scaler, it):
        x = next(it, None)
        if x is None:
            return
        opt.zero_grad()
        scaler.scale(model(x)).backward()
        scaler.step(opt)
        scaler.update()
        fit(model, opt, scaler, it)
""",
)
program(
    "del and rebuild",
    """
    def run(make, loaders, loss_fn):
        for loader in loaders:
            model, opt = make()
            scaler = GradScaler()
            for x in loader:
                opt.zero_grad()
                scaler.scale(loss_fn(model(x))).backward()
                scaler.step(opt)
                scaler.update()
            del scaler
""",
)
program(
    "update at the top of the round",
    """
    def train(model, opt, loader, loss_fn):
        scaler = GradScaler()
        for x in loader:
            opt.zero_grad()
            scaler.update()  # !update-before-step
            scaler.scale(loss_fn(model(x))).backward()
            scaler.step(opt)
""",
)
program(
    "update twice",
    """
    def train(model, opt, loader, loss_fn):
        scaler = GradScaler()
        for x in loader:
            opt.zero_grad()
            scaler.scale(loss_fn(model(x))).backward()
            scaler.step(opt)
            scaler.update()
            scaler.update()  # !update-before-step
""",
)
program(
    "update in both helper and loop",
    """
    class T:
        def __init__(self, model, opt):
            self.model, self.opt, self.scaler = model, opt, GradScaler()
        def optimize(self, loss):
            self.opt.zero_grad()
            self.scaler.scale(loss).backward()
            self.scaler.step(self.opt)
            self.scaler.update()
        def fit(self, loader):
            for x in loader:
                self.optimize(self.model(x))
                self.scaler.update()  # !update-before-step
""",
)
program(
    "two opts update after each, joint backward",
    """
    class T:
        def __init__(self, enc, dec):
            self.enc_opt = torch.optim.Adam(enc.parameters())
            self.dec_opt = torch.optim.Adam(dec.parameters())
            self.scaler = GradScaler()
        def step(self, loss):
            self.enc_opt.zero_grad(); self.dec_opt.zero_grad()
            self.scaler.scale(loss).backward()
            self.scaler.step(self.enc_opt)
            self.scaler.update()  # !update-between-optimizers
            self.scaler.step(self.dec_opt)
            self.scaler.update()
""",
)
program(
    "step in else only scaler.update outside",
    """
    def train(model, opt, loader, loss_fn):
        scaler = GradScaler()
        for x in loader:
            opt.zero_grad()
            loss = loss_fn(model(x))
            scaler.scale(loss).backward()
            if loss.item() < 100:
                scaler.step(opt)
            scaler.update()  # !update-before-step
""",
)
program(
    "exception handler skip",
    """
    def train(model, opt, loader, loss_fn):
        scaler = GradScaler()
        for x in loader:
            opt.zero_grad()
            scaler.scale(loss_fn(model(x))).backward()
            scaler.step(opt)  # !update-skipped-on-path
            try:
                check_weights(model)
            except ValueError:
                continue
            scaler.update()
""",
)
program(
    "return in step method",
    """
    class T:
        def __init__(self, model, opt):
            self.model, self.opt, self.scaler = model, opt, GradScaler()
        def train_batch(self, x):
            self.opt.zero_grad()
            self.scaler.scale(self.model(x)).backward()
            self.scaler.step(self.opt)  # !update-skipped-on-path
            if self.debug:
                return None
            self.scaler.update()
""",
)
program(
    "second arm bypass",
    """
    def train(model, opt, loader, loss_fn, warm):
        scaler = GradScaler()
        for i, x in enumerate(loader):
            opt.zero_grad()
            scaler.scale(loss_fn(model(x))).backward()
            if i < warm:
                opt.step()  # !step-bypasses-scaler
            else:
                scaler.step(opt)
                scaler.update()
""",
)
program(
    "unscale in helper and step order",
    """
    def clip(scaler, opt, params):
        clip_grad_norm_(params, 1.0)  # !clip-before-unscale
        scaler.unscale_(opt)
    def train(model, opt, loader, loss_fn):
        scaler = GradScaler()
        for x in loader:
            opt.zero_grad()
            scaler.scale(loss_fn(model(x))).backward()
            clip(scaler, opt, model.parameters())
            scaler.step(opt)
            scaler.update()
""",
)
program(
    "zero grad model between",
    """
    def train(model, opt, loader, loss_fn):
        scaler = GradScaler()
        for x in loader:
            scaler.scale(loss_fn(model(x))).backward()
            model.zero_grad()  # !no-gradients-at-step
            scaler.step(opt)
            scaler.update()
""",
)
program(
    "gradients set to None between backward and step",
    """
    def train(model, opt, loader, loss_fn):
        scaler = GradScaler()
        for x in loader:
            scaler.scale(loss_fn(model(x))).backward()
            for p in model.parameters():
                p.grad = None  # !no-gradients-at-step
            scaler.step(opt)
            scaler.update()
""",
)
program(
    "autocast decorated forward only ok",
    """
    class M(torch.nn.Module):
        @autocast("cuda")
        def forward(self, x):
            return self.net(x)
    def train(model, opt, loader, loss_fn):
        for x in loader:
            opt.zero_grad()
            loss_fn(model(x)).backward()
            opt.step()
""",
)
program(
    "autocast around with inner no_grad, two iterations",
    """
    def train(model, opt, scaler, loader, loss_fn):
        with torch.cuda.amp.autocast():
            for x in loader:
                loss = loss_fn(model(x))
                opt.zero_grad()
                scaler.scale(loss).backward()  # !backward-in-autocast
                scaler.step(opt)  # !step-in-autocast
                scaler.update()
""",
)
program(
    "nested disabled region backward",
    """
    def train(model, opt, scaler, loader, loss_fn):
        for x in loader:
            opt.zero_grad()
            with autocast("cuda"):
                out = model(x)
                with autocast("cuda", enabled=False):
                    loss = loss_fn(out.float())
                    scaler.scale(loss).backward()
            scaler.step(opt)
            scaler.update()
""",
)
program(
    "scaler in epoch loop warning",
    """
    def main(model, opt, loader, loss_fn, epochs):
        for epoch in range(epochs):
            scaler = GradScaler()  # !scaler-in-loop
            for x in loader:
                opt.zero_grad()
                scaler.scale(loss_fn(model(x))).backward()
                scaler.step(opt)
                scaler.update()
""",
)
program(
    "scaler in helper each iteration",
    """
    def step(model, opt, x, loss_fn):
        scaler = GradScaler()  # !scaler-in-loop
        opt.zero_grad()
        scaler.scale(loss_fn(model(x))).backward()
        scaler.step(opt)
        scaler.update()
    def main(model, opt, loader, loss_fn):
        for x in loader:
            step(model, opt, x, loss_fn)
""",
)
program(
    "lazy scaler",
    """
    def main(model, opt, loader, loss_fn, epochs):
        scaler = None
        for x in loader:
            if scaler is None:
                scaler = GradScaler()
            opt.zero_grad()
            scaler.scale(loss_fn(model(x))).backward()
            scaler.step(opt)
            scaler.update()
""",
)
program(
    "none then used",
    """
    def main(model, opt, loader, loss_fn, amp):
        scaler = None
        if amp:
            scaler = GradScaler()
        for x in loader:
            opt.zero_grad()
            scaler.scale(loss_fn(model(x))).backward()  # !scaler-maybe-unbound
            scaler.step(opt)
            scaler.update()
""",
)
program(
    "scaler none tested then used",
    """
    def train(model, opt, loader, loss_fn, scaler=None):
        for x in loader:
            opt.zero_grad()
            loss = loss_fn(model(x))
            if scaler is not None:
                scaler.scale(loss).backward()
            else:
                loss.backward()
            scaler.step(opt)  # !scaler-maybe-unbound
            scaler.update()
""",
)
program(
    "three losses one unscaled",
    """
    def train(model, opt, loader, l1, l2, l3):
        scaler = GradScaler()
        for x in loader:
            opt.zero_grad()
            o = model(x)
            a, b, c = l1(o), l2(o), l3(o)
            a.backward(retain_graph=True)  # !unscaled-backward
            scaler.scale(b).backward(retain_graph=True)
            scaler.scale(c).backward()
            scaler.step(opt)
            scaler.update()
""",
)
program(
    "adv training fgm unscaled",
    """
    def train(model, opt, loader, loss_fn, fgm):
        scaler = GradScaler()
        for x in loader:
            opt.zero_grad()
            scaler.scale(loss_fn(model(x))).backward()
            fgm.attack()
            loss_adv = loss_fn(model(x))
            loss_adv.backward()  # !unscaled-backward
            fgm.restore()
            scaler.step(opt)
            scaler.update()
""",
)
program(
    "unscaled in amp arm",
    """
    def train(model, opt, loader, loss_fn, amp):
        scaler = GradScaler(enabled=amp)
        for x in loader:
            opt.zero_grad()
            with autocast("cuda", enabled=amp):
                loss = loss_fn(model(x))
            loss.backward()  # !unscaled-backward
            if amp:
                scaler.step(opt)
                scaler.update()
            else:
                opt.step()
""",
)
program(
    "clip in accum outside",
    """
    def train(model, opt, loader, loss_fn, accum):
        scaler = GradScaler()
        for i, x in enumerate(loader):
            scaler.scale(loss_fn(model(x)) / accum).backward()
            clip_grad_norm_(model.parameters(), 1.0)  # !clip-before-unscale
            if (i + 1) % accum == 0:
                scaler.unscale_(opt)
                scaler.step(opt)
                scaler.update()
                opt.zero_grad()
""",
)
program(
    "norm read helper",
    """
    def grad_norm(model):
        total = 0.0
        for p in model.parameters():
            total += p.grad.detach().norm() ** 2
        return total ** 0.5
    def train(model, opt, loader, loss_fn):
        scaler = GradScaler()
        for x in loader:
            opt.zero_grad()
            scaler.scale(loss_fn(model(x))).backward()
            n = grad_norm(model)  # !grad-read-before-unscale
            scaler.step(opt)
            scaler.update()
""",
)
program(
    "isfinite check of grads",
    """
    def train(model, opt, loader, loss_fn):
        scaler = GradScaler()
        for x in loader:
            opt.zero_grad()
            scaler.scale(loss_fn(model(x))).backward()
            if any(not torch.isfinite(p.grad).all() for p in model.parameters()):  # !grad-read-before-unscale
                continue
            scaler.step(opt)
            scaler.update()
""",
)
program(
    "duplicate optimizer literal",
    """
    def train(model, opt, loader, loss_fn):
        scaler = GradScaler()
        for x in loader:
            opt.zero_grad()
            scaler.scale(loss_fn(model(x))).backward()
            for o in (opt, opt):  # !optimizer-identity
                scaler.step(o)
            scaler.update()
""",
)
program(
    "unscale inner step outer attr",
    """
    class W:
        def __init__(self, opt):
            self.optimizer = opt
    def train(model, opt, loader, loss_fn):
        w = W(opt)
        scaler = GradScaler()
        for x in loader:
            opt.zero_grad()
            scaler.scale(loss_fn(model(x))).backward()
            scaler.unscale_(w.optimizer)
            clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(w.optimizer)
            scaler.update()
""",
)
program(
    "while counter",
    """
    def train(model, opt, it, loss_fn, n):
        scaler = GradScaler()
        i = 0
        while i < n:
            x = next(it)
            opt.zero_grad()
            scaler.scale(loss_fn(model(x))).backward()
            scaler.unscale_(opt)
            clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(opt)  # !missing-update
            i += 1
""",
)
program(
    "missing update in class",
    """
    class T:
        def __init__(self, model, opt):
            self.model, self.opt, self.scaler = model, opt, GradScaler()
        def step(self, x):
            self.opt.zero_grad()
            self.scaler.scale(self.model(x)).backward()
            self.scaler.unscale_(self.opt)
            clip_grad_norm_(self.model.parameters(), 1.0)
            self.scaler.step(self.opt)  # !missing-update
""",
)
program(
    "update on every micro-batch, async",
    """
    async def train(model, opt, src, loss_fn, accum):
        scaler = GradScaler()
        n = 0
        async with src as s:
            async for x in s:
                scaler.scale(loss_fn(model(x))).backward()
                n += 1
                if n % accum == 0:
                    scaler.step(opt)
                    opt.zero_grad()
                scaler.update()  # !update-in-accumulation
""",
)
program(
    "global scaler functions",
    """
    scaler = GradScaler()
    def backward(loss):
        scaler.scale(loss).backward()
    def optimize(opt, model):
        clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(opt)
        scaler.update()
    def train(model, opt, loader, loss_fn):
        for x in loader:
            opt.zero_grad()
            backward(loss_fn(model(x)))
            optimize(opt, model)  # !clip-before-unscale
""",
)
