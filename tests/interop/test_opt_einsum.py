"""opt_einsum contracts tensors."""

import numpy as np
import opt_einsum
import pytest

import firebrick as fb

RNG = np.random.default_rng(0)

EXPRESSIONS = {
    "a matrix product": ("ij,jk->ik", (3, 4), (4, 5)),
    "a product with transposed result": ("ij,jk->ki", (3, 4), (4, 5)),
    "a chain": ("abc,cd,ed->abe", (2, 3, 4), (4, 5), (6, 5)),
    "a trace": ("ii->", (4, 4)),
    "a diagonal": ("iij->ij", (4, 4, 3)),
    "an outer product": ("i,j->ij", (3,), (4,)),
    "a batch": ("bij,bjk->bik", (2, 3, 4), (2, 4, 5)),
    "broadcasting": ("...ij,jk->...ik", (2, 3, 4), (4, 5)),
}


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_contract_is_that_of_numpy(name: str, device: str) -> None:
    expression, *shapes = EXPRESSIONS[name]
    arrays = [RNG.random(s) for s in shapes]
    found = opt_einsum.contract(expression, *(fb.asarray(a, device=device) for a in arrays))
    assert isinstance(found, fb.Tensor)
    assert found.device is fb.device(device)
    np.testing.assert_allclose(found.numpy(), np.einsum(expression, *arrays), rtol=1e-12)


def test_expressions_with_constants_and_gradients() -> None:
    a, b, c = (RNG.random(s) for s in ((3, 4), (4, 5), (5, 6)))
    expression = opt_einsum.contract_expression("ij,jk,kl->il", fb.asarray(a), (4, 5), fb.asarray(c), constants=[0, 2])
    np.testing.assert_allclose(expression(fb.asarray(b)).numpy(), a @ b @ c, rtol=1e-12)
    gradient = fb.grad(lambda b: fb.sum(opt_einsum.contract("ij,jk->k", fb.asarray(a), b)))(fb.asarray(b))
    np.testing.assert_allclose(gradient.numpy(), np.broadcast_to(a.sum(0)[:, None], b.shape), rtol=1e-12)
