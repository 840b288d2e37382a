"""Programs that planted faults and real trainers taught the engine."""

from __future__ import annotations

from tests.flow.programs import program

program(
    "a loop without a scaler comes first",
    """
    opt = torch.optim.SGD(net.parameters(), lr=0.001)
    for x in data:
        loss = net(x).sum()
        loss.backward()
        opt.step()
        opt.zero_grad()
    scaler = GradScaler()
    for x in data:
        loss = net(x).sum()
        loss.backward()  # !unscaled-backward
        scaler.step(opt)
        scaler.update()
        opt.zero_grad()
""",
)
program(
    "loops without and with a scaler come first",
    """
    opt = torch.optim.SGD(net.parameters(), lr=0.001)
    for x in data:
        loss = net(x).sum()
        loss.backward()
        opt.step()
        opt.zero_grad()
    scaler = GradScaler()
    for x in data:
        loss = net(x).sum()
        scaler.scale(loss).backward()
        scaler.step(opt)
        scaler.update()
        opt.zero_grad()
    for x in data:
        loss = net(x).sum()
        loss.backward()  # !unscaled-backward
        scaler.step(opt)
        scaler.update()
        opt.zero_grad()
""",
)
program(
    "a class whose loop is elsewhere never updates",
    """
    class Wrapper:
        def __init__(self, opt):
            self.opt = opt
            self.scaler = GradScaler()

        def backward(self, loss):
            self.scaler.scale(loss).backward()

        def step(self):
            self.scaler.step(self.opt)  # !missing-update
""",
)
program(
    "a class whose loop is elsewhere updates now and then",
    """
    class Wrapper:
        def __init__(self, opt, clip):
            self.opt = opt
            self.clip = clip
            self.scaler = GradScaler()

        def backward(self, loss):
            self.scaler.scale(loss).backward()

        def step(self):
            self.scaler.step(self.opt)  # !update-skipped-on-path
            if self.clip:
                self.scaler.update(self.clip)
""",
)
program(
    "a class whose loop is elsewhere and whose third method updates",
    """
    class Wrapper:
        def __init__(self, opt):
            self.opt = opt
            self.scaler = GradScaler()

        def backward(self, loss):
            self.scaler.scale(loss).backward()

        def step(self):
            self.scaler.step(self.opt)

        def finish(self):
            self.scaler.update()
""",
)
program(
    "a scaler out of a namespace goes to helpers that test it for None",
    """
    def backward(total, scaler):
        if scaler is not None:
            scaler.scale(total).backward()
        else:
            total.backward()

    def finish(opt, scaler, model, args):
        if scaler is not None:
            if args.clip is not None:
                scaler.unscale_(opt)
                clip_grad_norm_(model.parameters(), args.clip)
            scaler.step(opt)
            scaler.update()
        else:
            if args.clip is not None:
                clip_grad_norm_(model.parameters(), args.clip)
            opt.step()

    def train(state, loader, args):
        model, opt, scaler = state.model, state.opt, state.scaler
        for batch in loader:
            opt.zero_grad()
            backward(model(batch), scaler)
            finish(opt, scaler, model, args)

    def train_by_name(state, loader, args):
        model = state.model
        opt = state.opt
        scaler = state.scaler
        for batch in loader:
            opt.zero_grad()
            backward(model(batch), scaler)
            finish(opt, scaler, model, args)
""",
)
program(
    "a copied flag is tested for None",
    """
    def train(model, opt, loader, loss_fn, args, scaler):
        limit = args.limit
        for x in loader:
            opt.zero_grad()
            scaler.scale(loss_fn(model(x))).backward()
            if args.limit is not None:
                scaler.unscale_(opt)
            if limit is not None:
                clip_grad_norm_(model.parameters(), limit)
            scaler.step(opt)
            scaler.update()
""",
)
program(
    "a predicate is asked twice",
    """
    def boundary(step, every):
        last = (step + 1) % every == 0
        return last

    def train(model, opt, loader, loss_fn, every):
        scaler = GradScaler()
        for step, x in enumerate(loader):
            scaler.scale(loss_fn(model(x))).backward()
            if boundary(step, every):
                scaler.unscale_(opt)
            if boundary(step, every):
                clip_grad_norm_(model.parameters(), 1.0)
                scaler.step(opt)
                scaler.update()
                opt.zero_grad()
""",
)
program(
    "a predicate is asked again after what it reads changed",
    """
    class Trainer:
        def __init__(self, opt):
            self.opt = opt
            self.steps = 0
            self.scaler = GradScaler()

        def is_due(self):
            return self.steps % 4 == 0

        def fit(self, loader):
            for x in loader:
                self.scaler.scale(self.model(x)).backward()
                if self.is_due():
                    self.scaler.unscale_(self.opt)  # !update-skipped-on-path
                self.steps += 1
                if self.is_due():
                    clip_grad_norm_(self.model.parameters(), 1.0)  # !clip-before-unscale
                    self.scaler.step(self.opt)
                    self.scaler.update()
                    self.opt.zero_grad()
""",
)
program(
    "the clip of one of two networks, each with its scaler",
    """
    class GAN:
        def __init__(self):
            self.scaler_g = GradScaler()
            self.scaler_d = GradScaler()

        def train_step(self, x):
            self.scaler_g.scale(self.loss_g(x)).backward()
            self.scaler_g.unscale_(self.optimizer_g)
            clip_grad_norm_(self.net_g.parameters(), 1.0)
            self.scaler_d.scale(self.loss_d(x)).backward()
            clip_grad_norm_(self.net_d.parameters(), 1.0)  # !clip-before-unscale
            self.scaler_g.step(self.optimizer_g)
            self.scaler_d.step(self.optimizer_d)
            self.scaler_g.update()
            self.scaler_d.update()
            self.optimizer_g.zero_grad()
            self.optimizer_d.zero_grad()
""",
)
program(
    "two plain backwards that one scaler steps, after one that another arm scales",
    """
    class GAN:
        def __init__(self, sam):
            self.sam = sam
            self.scaler_g = GradScaler()
            self.scaler_d = GradScaler()

        def train_step(self, x):
            loss_g, loss_real, loss_fake = self.losses(x)
            if self.sam:
                loss_g.backward()
            else:
                self.scaler_g.scale(loss_g).backward()
            if self.sam:
                loss_real.backward()  # !unscaled-backward
                loss_fake.backward()
            else:
                self.scaler_d.scale(loss_real).backward()
                self.scaler_d.scale(loss_fake).backward()
            if self.sam:
                self.optimizer_g.step()
            else:
                self.scaler_g.step(self.optimizer_g)
                self.scaler_g.update()
            self.scaler_d.step(self.optimizer_d)
            self.scaler_d.update()
            self.optimizer_g.zero_grad()
            self.optimizer_d.zero_grad()
""",
)
program(
    "optimizers of an object that is made by a call",
    """
    class Trainer:
        def __init__(self, model):
            self.state = State(model)
            self.scaler = GradScaler()

        def batch(self, x):
            for optimizer in self.state.optimizers:
                self.scaler.step(optimizer)  # !missing-update

        def fit(self, loader):
            for x in loader:
                self.scaler.scale(self.state.model(x)).backward()
                self.batch(x)
                for optimizer in self.state.optimizers:
                    optimizer.zero_grad()
""",
)
program(
    "of two arms that step, one is followed by the update",
    """
    def finish(scaler):
        scaler.update()

    def train(model, opt, scaler, loader, loss_fn, flag):
        for epoch in range(2):
            for x, y in loader:
                scaler.scale(loss_fn(model(x), y)).backward()
                if flag:
                    scaler.step(opt)
                else:
                    scaler.step(opt)  # !update-skipped-on-path
                if flag:
                    finish(scaler)
""",
)
program(
    "gradients are thrown away after the update and before the step",
    """
    def train(model, opt, loader, loss_fn):
        scaler = GradScaler()
        for x in loader:
            scaler.scale(loss_fn(model(x))).backward()
            scaler.unscale_(opt)
            scaler.update()
            opt.zero_grad()  # !no-gradients-at-step
            scaler.step(opt)
""",
)
program(
    "two optimizers of a literal step directly",
    """
    def train(model, opt, opt_b, loader, loss_fn):
        scaler = GradScaler()
        for x in loader:
            scaler.scale(loss_fn(model(x))).backward()
            for each in [opt, opt_b]:
                each.step()  # !step-bypasses-scaler
            opt.zero_grad()
            opt_b.zero_grad()

    def train_rightly(model, opt, opt_b, loader, loss_fn):
        scaler = GradScaler()
        for x in loader:
            scaler.scale(loss_fn(model(x))).backward()
            for each in [opt, opt_b]:
                scaler.step(each)
            scaler.update()
            opt.zero_grad()
            opt_b.zero_grad()
""",
)
program(
    "an exception in a region leaves it",
    """
    def fit(model, opt, loader, amp):
        scaler = GradScaler()
        for x in loader:
            opt.zero_grad()
            if amp:
                try:
                    with autocast("cuda"):
                        loss = model(x)
                        check(loss)
                except Exception:
                    continue
                scaler.scale(loss).backward()
                scaler.step(opt)
                scaler.update()
            else:
                loss = model(x)
                loss.backward()
                opt.step()
""",
)
program(
    "no update in a body that catches everything",
    """
    def fit(model, opt, loader):
        scaler = GradScaler()
        for x in loader:
            try:
                opt.zero_grad()
                with autocast("cuda"):
                    loss = model(x)
                scaler.scale(loss).backward()
                scaler.unscale_(opt)
                scaler.step(opt)  # !missing-update
            except Exception as error:
                print(error)
""",
)
program(
    "timm's scaler is called",
    """
    from timm.utils import NativeScaler

    def train(model, opt, loader, loss_fn, accum, clip):
        scaler_of_loss = NativeScaler()
        for i, x in enumerate(loader):
            due = (i + 1) % accum == 0
            scaler_of_loss(loss_fn(model(x)), opt, clip_grad=clip, parameters=model.parameters(), need_update=due)
            if due:
                opt.zero_grad()

    def train_one_epoch(model, opt, loader, loss_fn, loss_scaler, clip):
        for x in loader:
            opt.zero_grad()
            loss = loss_fn(model(x))
            if loss_scaler is not None:
                loss_scaler(loss, opt, clip_grad=clip, parameters=model.parameters())
            else:
                loss.backward()
                if clip:
                    clip_grad_norm_(model.parameters(), clip)
                opt.step()
""",
)
program(
    "a step after timm's scaler has stepped",
    """
    from timm.utils import NativeScaler

    def train(model, opt, loader, loss_fn):
        loss_scaler = NativeScaler()
        for x in loader:
            opt.zero_grad()
            loss_scaler(loss_fn(model(x)), opt, clip_grad=1.0, parameters=model.parameters())
            opt.step()  # !double-step
""",
)
program(
    "thresholds that carry the scale by name",
    """
    def train(model, opt, loader, loss_fn, most):
        scaler = GradScaler()
        for x in loader:
            opt.zero_grad()
            scaler.scale(loss_fn(model(x))).backward()
            limit = 1.0 * scaler.get_scale()
            clip_grad_norm_(model.parameters(), limit)
            s = scaler.get_scale()
            clip_grad_value_(model.parameters(), clip_value=most * s)
            scaler.step(opt)
            scaler.update()

    def train_with_another(model, opt, loader, loss_fn, most):
        scaler = GradScaler()
        for x in loader:
            opt.zero_grad()
            scaler.scale(loss_fn(model(x))).backward()
            limit = 2 * most
            clip_grad_norm_(model.parameters(), limit)  # !clip-before-unscale
            scaler.step(opt)
            scaler.update()
""",
)
program(
    "backward from a gradient that is scaled already",
    """
    def train(model, opt, loader, loss_fn, g):
        scaler = GradScaler()
        for x in loader:
            opt.zero_grad()
            out = model(x)
            out.backward(gradient=scaler.scale(g))
            scaler.step(opt)
            scaler.update()

    def train_in_two_halves(body, head, opt, loader, loss_fn):
        scaler = GradScaler()
        for x in loader:
            opt.zero_grad()
            h = body(x)
            leaf = h.detach().requires_grad_()
            scaler.scale(loss_fn(head(leaf))).backward()
            h.backward(leaf.grad)
            scaler.step(opt)
            scaler.update()
""",
)
program(
    "an unscaled loss in one arm, whose step has its update in the other",
    """
    class GAN:
        def __init__(self, plain):
            self.plain = plain
            self.scaler = GradScaler()

        def train_step(self, x):
            loss = self.loss(x)
            if self.plain:
                loss.backward()  # !unscaled-backward
            else:
                self.scaler.scale(loss).backward()
            self.scaler.step(self.optimizer)  # !update-skipped-on-path
            if not self.plain:
                self.scaler.update()
            self.optimizer.zero_grad()
""",
)
program(
    "a step that is repeated within one iteration",
    """
    def train(model, opt, loader, loss_fn):
        scaler = GradScaler()
        for x in loader:
            opt.zero_grad()
            scaler.scale(loss_fn(model(x))).backward()
            for _ in range(3):
                scaler.step(opt)  # !scaler-step-twice
            scaler.update()
""",
)
program(
    "an update after the step of each optimizer of a collection",
    """
    def train(model, loader, loss_fn, opt_a, opt_b):
        scaler = GradScaler()
        optimizers = [opt_a, opt_b]
        for x in loader:
            scaler.scale(loss_fn(model(x))).backward()
            for opt in optimizers:
                scaler.step(opt)
                scaler.update()  # !update-between-optimizers
            for opt in optimizers:
                opt.zero_grad()

    class Trainer:
        def __init__(self, opt_a, opt_b):
            self.optims = {"a": opt_a, "b": opt_b}
            self.scaler = GradScaler()

        def fit(self, loader):
            for x in loader:
                self.scaler.scale(self.loss(x)).backward()
                for name, opt in self.optims.items():
                    self.scaler.step(opt)
                    self.scaler.update()  # !update-between-optimizers
                for opt in self.optims.values():
                    opt.zero_grad()

    def train_each(models, loader, losses, optimizers):
        scaler = GradScaler()
        for x in loader:
            for model, loss_fn, opt in zip(models, losses, optimizers):
                opt.zero_grad()
                scaler.scale(loss_fn(model(x))).backward()
                scaler.step(opt)
                scaler.update()
""",
)
program(
    "a clip after gradients that were unscaled too early",
    """
    def train(model, opt, loader, loss_fn):
        scaler = GradScaler()
        for x in loader:
            loss = loss_fn(model(x))
            scaler.unscale_(opt)  # !unscale-in-accumulation
            scaler.scale(loss).backward()
            clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(opt)
            scaler.update()
            opt.zero_grad()
""",
)
program(
    "counters that are set back to zero at the boundary",
    """
    def unscales_always(model, opt, loader, loss_fn):
        scaler = GradScaler()
        n = 0
        for x in loader:
            scaler.scale(loss_fn(model(x)) / 4).backward()
            scaler.unscale_(opt)  # !unscale-in-accumulation
            clip_grad_norm_(model.parameters(), 1.0)
            n += 1
            if n == 4:
                scaler.step(opt)
                scaler.update()
                opt.zero_grad()
                n = 0

    def updates_always(model, opt, loader, loss_fn, k):
        scaler = GradScaler()
        n = 0
        for x in loader:
            scaler.scale(loss_fn(model(x)) / k).backward()
            n += 1
            if n >= k:
                scaler.step(opt)
                opt.zero_grad()
                n = 0
            scaler.update()  # !update-in-accumulation

    def counts_failures(model, opt, loader, loss_fn):
        scaler = GradScaler()
        bad = 0
        for x in loader:
            opt.zero_grad()
            scaler.scale(loss_fn(model(x))).backward()
            scaler.unscale_(opt)  # !update-skipped-on-path
            norm = clip_grad_norm_(model.parameters(), 1.0)
            if norm > 100:
                bad += 1
                if bad == 4:
                    print(norm)
                    bad = 0
                continue
            scaler.step(opt)
            scaler.update()
""",
)
program(
    "gradients that are changed or shown before unscale_",
    """
    def changes(model, opt, loader, loss_fn, c, std):
        scaler = GradScaler()
        for x in loader:
            opt.zero_grad()
            scaler.scale(loss_fn(model(x))).backward()
            for p in model.parameters():
                p.grad.add_(torch.randn_like(p.grad), alpha=0.01)  # !grad-read-before-unscale
                p.grad += 0.01  # !grad-read-before-unscale
                p.grad = p.grad + std * torch.randn_like(p.grad)  # !grad-read-before-unscale
            scaler.step(opt)
            scaler.update()

    def logs(model, opt, loader, loss_fn, writer):
        scaler = GradScaler()
        for i, x in enumerate(loader):
            opt.zero_grad()
            scaler.scale(loss_fn(model(x))).backward()
            for n, p in model.named_parameters():
                writer.add_histogram(n, p.grad, i)  # !grad-read-before-unscale
                print(p.grad)  # !grad-read-before-unscale
                wandb.log({n: p.grad})  # !grad-read-before-unscale
                wandb.log({n: wandb.Histogram(p.grad.cpu())})  # !grad-read-before-unscale
            scaler.step(opt)
            scaler.update()

    def ok(model, opt, loader, loss_fn, writer, world_size, saved):
        scaler = GradScaler()
        for i, x in enumerate(loader):
            opt.zero_grad()
            scaler.scale(loss_fn(model(x))).backward()
            for n, p in model.named_parameters():
                if p.grad is None:
                    print(n)
                    continue
                torch.distributed.all_reduce(p.grad)
                p.grad.div_(world_size)
                p.grad.mul_(0.5)
                p.grad /= 2
                p.grad += saved[n]
                p.grad.add_(saved[n].grad)
                writer.add_histogram(n, p.grad / scaler.get_scale(), i)
                print(n, p.grad is None, p.grad.shape, p.grad.dtype)
                wandb.log({n: p.grad / scaler.get_scale()})
                p.grad.add_(0.1 * scaler.get_scale())
                p.grad.add_(torch.randn_like(p.grad) * scaler.get_scale())
            scaler.step(opt)
            scaler.update()

    def after(model, opt, loader, loss_fn, writer):
        scaler = GradScaler()
        for i, x in enumerate(loader):
            opt.zero_grad()
            scaler.scale(loss_fn(model(x))).backward()
            scaler.unscale_(opt)
            for n, p in model.named_parameters():
                writer.add_histogram(n, p.grad, i)
                p.grad.add_(torch.randn_like(p.grad))
            scaler.step(opt)
            scaler.update()
""",
)
program(
    "a helper that steps is called twice",
    """
    class Trainer:
        def __init__(self, model, opt):
            self.model, self.opt = model, opt
            self.gs = GradScaler()

        def _step(self):
            self.gs.step(self.opt)

        def train(self, x):
            self.opt.zero_grad()
            self.gs.scale(self.model(x).sum()).backward()
            self._step()
            if x.sum() > 0:
                self._step()  # !scaler-step-twice
            self.gs.update()

        def train_once(self, x):
            self.opt.zero_grad()
            self.gs.scale(self.model(x).sum()).backward()
            self._step()
            self.gs.update()
""",
)
