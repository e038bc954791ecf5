"""Estimators, metrics and functions of scikit-learn and SciPy, computed with tensors and with NumPy's arrays.

A program of its own, since SciPy reads ``SCIPY_ARRAY_API`` when it is imported. It prints, as JSON, what differs for each
case on each device: nothing, or the first difference.
"""

import json
import os
import sys
from collections.abc import Callable
from typing import Any

os.environ["SCIPY_ARRAY_API"] = "1"

import numpy as np
import scipy.cluster.vq
import scipy.differentiate
import scipy.fft
import scipy.integrate
import scipy.signal
import scipy.special
import scipy.stats
import sklearn
from sklearn import decomposition, discriminant_analysis, linear_model, metrics, model_selection, naive_bayes, preprocessing

import firebrick as fb

DEVICES = ("cpu", "torch:cpu", "numpy")
RNG = np.random.default_rng(0)
X = RNG.random((60, 5))
LABELS = RNG.integers(0, 3, 60)
DATA = {
    "X": X,
    "y": LABELS,
    "binary": (LABELS > 0).astype(np.int64),
    "other": RNG.integers(0, 3, 60),
    "target": X @ RNG.normal(size=5) + 0.1 * RNG.normal(size=60),
    "p": np.exp(X[:, :3]) / np.exp(X[:, :3]).sum(1, keepdims=True),
    "v": RNG.random(20) + 0.1,
    "w": RNG.random(20) + 0.2,
}
"""Arguments of the cases by name."""

Case = Callable[..., Any]
lda, pca, ridge = discriminant_analysis.LinearDiscriminantAnalysis, decomposition.PCA, linear_model.Ridge

SIGNS_ARE_FREE: dict[str, Case] = {
    "LDA transform": lambda X, y: lda().fit(X, y).transform(X),
    "PCA full": lambda X: pca(2, svd_solver="full").fit_transform(X),
    "PCA covariance": lambda X: pca(2, svd_solver="covariance_eigh", whiten=True).fit_transform(X),
    "PCA randomized": lambda X: pca(2, svd_solver="randomized", power_iteration_normalizer="QR", random_state=0).fit_transform(
        X
    ),
}
"""Columns that are eigenvectors or made of them, of which either sign is right."""

AVERAGED_IN_THE_DEFAULT_DTYPE = {"accuracy_score", "roc_auc_score of classes"}
"""scikit-learn makes a tensor of Python's numbers, which is float32 here and float64 in NumPy."""

CASES: dict[str, Case] = {
    **SIGNS_ARE_FREE,
    "LDA predict": lambda X, y: lda().fit(X, y).predict(X),
    "LDA probabilities": lambda X, y: lda().fit(X, y).predict_proba(X),
    "PCA score": lambda X: pca(2, svd_solver="full").fit(X).score_samples(X),
    "Ridge": lambda X, target: ridge(solver="svd").fit(X, target).predict(X),
    "Ridge coefficients": lambda X, target: ridge(solver="svd").fit(X, target).coef_,
    "RidgeClassifier": lambda X, y: linear_model.RidgeClassifier(solver="svd").fit(X, y).predict(X),
    "GaussianNB": lambda X, y: naive_bayes.GaussianNB().fit(X, y).predict_proba(X),
    "StandardScaler": lambda X: preprocessing.StandardScaler().fit_transform(X),
    "MinMaxScaler": lambda X: preprocessing.MinMaxScaler().fit_transform(X),
    "MaxAbsScaler": lambda X: preprocessing.MaxAbsScaler().fit_transform(X),
    "Normalizer": lambda X: preprocessing.Normalizer().fit_transform(X),
    "LabelEncoder": lambda y: preprocessing.LabelEncoder().fit_transform(y),
    "PolynomialFeatures": lambda X: preprocessing.PolynomialFeatures(2).fit_transform(X),
    "train_test_split": lambda X: model_selection.train_test_split(X, random_state=0),
    "cross_val_predict": lambda X, target: model_selection.cross_val_predict(ridge(solver="svd"), X, target, cv=3),
    "roc_auc_score": lambda X, binary: metrics.roc_auc_score(binary, X[:, 0]),
    "roc_auc_score of bools": lambda X, binary: metrics.roc_auc_score(binary == 1, X[:, 0]),
    "roc_auc_score of classes": lambda y, p: metrics.roc_auc_score(y, p, multi_class="ovr"),
    "roc_curve": lambda X, binary: metrics.roc_curve(binary, X[:, 0]),
    "precision_recall_curve": lambda X, binary: metrics.precision_recall_curve(binary, X[:, 0]),
    "log_loss": lambda y, p: metrics.log_loss(y, p),
    "confusion_matrix": lambda y, other: metrics.confusion_matrix(y, other),
    "accuracy_score": lambda y, other: metrics.accuracy_score(y, other),
    "f1_score": lambda y, other: metrics.f1_score(y, other, average="macro"),
    "r2_score": lambda v, w: metrics.r2_score(v, w),
    "mean_squared_error": lambda v, w: metrics.mean_squared_error(v, w),
    "mean_absolute_error": lambda v, w: metrics.mean_absolute_error(v, w),
    "rbf_kernel": lambda X: metrics.pairwise.rbf_kernel(X, X * 0.5),
    "pairwise_distances": lambda X: metrics.pairwise_distances(X),
    "special.logsumexp": scipy.special.logsumexp,
    "special.softmax": scipy.special.softmax,
    "special.erf": scipy.special.erf,
    "special.gammaln": scipy.special.gammaln,
    "special.xlogy": scipy.special.xlogy,
    "stats.skew": scipy.stats.skew,
    "stats.zscore": scipy.stats.zscore,
    "stats.describe": lambda v: tuple(scipy.stats.describe(v)[2:]),
    "stats.ttest_ind": lambda v, w: tuple(scipy.stats.ttest_ind(v, w)),
    "stats.pearsonr": lambda v, w: scipy.stats.pearsonr(v, w).statistic,
    "stats.kurtosistest": lambda v: tuple(scipy.stats.kurtosistest(v)),
    "stats.entropy": scipy.stats.entropy,
    "stats.quantile": lambda v: scipy.stats.quantile(v, 0.3),
    "fft.rfft": scipy.fft.rfft,
    "fft.fftn": lambda X: scipy.fft.fftn(X),
    "fft.fftshift": scipy.fft.fftshift,
    "fft.dct": scipy.fft.dct,
    "signal.fftconvolve": scipy.signal.fftconvolve,
    "signal.hilbert": scipy.signal.hilbert,
    "signal.detrend": scipy.signal.detrend,
    "integrate.trapezoid": scipy.integrate.trapezoid,
    "integrate.cubature": lambda v: scipy.integrate.cubature(lambda x: x[:, 0] ** 2, v[:1] * 0, v[:1]).estimate,
    "cluster.vq.whiten": lambda X: scipy.cluster.vq.whiten(X),
    "cluster.vq.vq": lambda X: scipy.cluster.vq.vq(X, X[:3, :]),
    "differentiate.derivative": lambda v: scipy.differentiate.derivative(lambda x: x**3, v).df,
}


def arguments(case: Case) -> list[str]:
    """Which data a case takes; a function of SciPy takes ``v``, or ``v`` and ``w``."""
    code = getattr(case, "__code__", None)
    if case.__module__ == __name__ and code is not None:
        return list(code.co_varnames[: code.co_argcount])
    return ["v", "w"] if case in (scipy.special.xlogy, scipy.signal.fftconvolve) else ["v"]


def parts(result: Any) -> list[Any]:
    return [p for r in result for p in parts(r)] if isinstance(result, (tuple, list)) else [result]


def difference(name: str, case: Case, device: str) -> str | None:
    """What a case computes differently with tensors, or None."""
    given = [DATA[n] for n in arguments(case)]
    with sklearn.config_context(array_api_dispatch=True):
        expected = parts(case(*given))
        with fb.use_device(device):
            try:
                found = parts(case(*(fb.asarray(a) for a in given)))
            except Exception as e:  # noqa: BLE001 - each case is reported
                return f"{type(e).__name__}: {e}"
    tolerance = 1e-6 if name in AVERAGED_IN_THE_DEFAULT_DTYPE else 1e-9
    for e, f in zip(expected, found, strict=True):
        want = np.asarray(e)
        if want.ndim and not isinstance(f, fb.Tensor):
            return f"{type(f).__name__} instead of a tensor"
        if isinstance(f, fb.Tensor) and f.device is not fb.device(device):
            return f"on {f.device}"
        got = np.asarray(f)
        if got.shape != want.shape or got.dtype.kind != want.dtype.kind:
            return f"{got.dtype}{got.shape} instead of {want.dtype}{want.shape}"
        if name in SIGNS_ARE_FREE:
            got, want = np.abs(got), np.abs(want)
        if not np.allclose(got, want, rtol=tolerance, atol=tolerance):
            return f"{got.ravel()[:4]} instead of {want.ravel()[:4]}"
    return None


if __name__ == "__main__":
    found = {f"{name} on {d}": difference(name, case, d) for d in DEVICES for name, case in CASES.items()}
    json.dump(found, sys.stdout)
