"""Iterations of several steps, and what stands between them, as GANs have them."""

from __future__ import annotations

from tests.migrate.test_hazards import REGION, migrated

SECOND = "\nother = nn.Linear(4, 2).to(device)\nsecond = torch.optim.SGD(other.parameters(), lr=0.1)\n"


def protocol_of(text: str) -> list[str]:
    return [line for line in text.splitlines() if "scaler." in line and "with" not in line]


def test_a_branch_that_ends_the_iteration_has_its_own_update() -> None:
    text = migrated(
        SECOND
        + """
for i, (x, y) in enumerate(batches):
    loss = F.mse_loss(model(x), y)
    optimizer.zero_grad()
    if i < 10:
        loss.backward()
        optimizer.step()
        continue
    loss = loss + other(x).mean()
    loss.backward()
    optimizer.step()
    second.zero_grad()
    other(x).mean().backward()
    second.step()
"""
    )
    assert protocol_of(text) == [
        "        scaler.scale(loss).backward()",
        "        scaler.step(optimizer)",
        "        scaler.update()",
        "    scaler.scale(loss).backward()",
        "    scaler.step(optimizer)",
        "    scaler.scale(total_loss).backward()",
        "    scaler.step(second)",
        "    scaler.update()",
    ]


def test_a_model_that_runs_again_for_a_score_is_left_alone() -> None:
    text = migrated(
        SECOND
        + """
for x, y in batches:
    out = model(x)
    loss = F.mse_loss(other(out), y)
    optimizer.zero_grad()
    loss.backward()
    out = model(x)
    score = other(out).mean()
    optimizer.step()
"""
    )
    assert "scaler.scale(loss).backward()\n    out = model(x)\n    score = other(out).mean()\n" in text


def test_a_buffer_that_is_a_list_takes_any_value() -> None:
    text = migrated(
        """
        class Pool:
            def __init__(self):
                self.images = []

            def swap(self, image, i):
                old = self.images[i].clone()
                self.images[i] = image
                return old

        pool = Pool()
        for x, y in batches:
            out = model(x)
            out = pool.swap(out, 0)
            loss = F.mse_loss(model(out), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        """
    )
    assert "        self.images[i] = image\n" in text


def test_products_of_unit_vectors_are_no_gram_matrices_of_images() -> None:
    text = migrated(
        """
        for x, y in batches:
            out = model(x)
            unit = out / out.norm(dim=1, keepdim=True)
            near = F.normalize(out, dim=1)
            loss = torch.matmul(unit, unit.t()).mean() + (near @ near.T).mean() + torch.mm(near, near.T).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        """
    )
    assert f"    {REGION}\n        out = model(x)\n" in text


def test_the_weight_of_a_loss_may_be_tiny() -> None:
    text = migrated(
        """
        for x, y in batches:
            tv_loss = model(x).pow(2).sum()
            loss = F.mse_loss(model(x), y) + 2e-8 * tv_loss
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        """
    )
    assert "        loss = F.mse_loss(model(x), y) + 2e-8 * tv_loss\n    optimizer" in text


def test_methods_of_one_object_name_their_models_alike() -> None:
    text = migrated(
        """
        class Trainer:
            def __init__(self, G, D):
                self.G, self.D = G, D
                self.G.eval()
                self.optD = torch.optim.Adam(self.D.parameters())

            def score(self, x):
                return self.D(x).mean()

            def train_D(self, x, z):
                x = x.to(device)
                with torch.no_grad():
                    fake = self.G(z)
                loss = self.score(fake) - self.score(x)
                self.optD.zero_grad()
                loss.backward()
                self.optD.step()
        """
    )
    assert "cache_enabled" not in text


def test_models_and_optimizers_may_be_kept_in_dicts() -> None:
    text = migrated(
        """
        nets = {"G": nn.Linear(4, 4).to(device), "D": nn.Linear(4, 2).to(device)}
        opts = {"G": torch.optim.Adam(nets["G"].parameters()), "D": torch.optim.Adam(nets["D"].parameters())}
        for x, y in batches:
            fake = nets["G"](x)
            loss = F.mse_loss(nets["D"](fake.detach()), y)
            opts["D"].zero_grad()
            loss.backward()
            opts["D"].step()
            loss = nets["D"](fake).mean()
            opts["G"].zero_grad()
            loss.backward()
            opts["G"].step()
        """
    )
    assert f'    {REGION}\n        fake = nets["G"](x)\n        loss = F.mse_loss(' in text
    assert protocol_of(text) == [
        "    scaler.scale(loss).backward()",
        '    scaler.step(opts["D"])',
        "    scaler.scale(loss).backward()",
        '    scaler.step(opts["G"])',
        "    scaler.update()",
    ]
