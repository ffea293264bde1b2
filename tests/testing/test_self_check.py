"""The self-check passes here, and notices a method that computes something else."""

from gossamer import methods
from gossamer.testing.self_check import self_check


def test_every_method_passes_here():
    checks = self_check(rounds=10)
    assert {c.method for c in checks} == set(methods.BUILT_IN)
    assert all(c.passed for c in checks)


def test_a_wrong_method_is_noticed(monkeypatch):
    right = methods.DSGDm.step
    monkeypatch.setattr(
        methods.DSGDm, "step", lambda self, state, x, grad, lr, net, r: right(self, state, x, grad, lr * 1.001, net, r)
    )
    assert [c.method for c in self_check(rounds=10) if not c.passed] == ["dsgdm"]
