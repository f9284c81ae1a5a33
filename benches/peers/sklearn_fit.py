"""scikit-learn. SGDRegressor updates row by row, so its rate is rows per second divided by the batch size; it
is shown but not counted. MLPClassifier updates by batches and records one loss per epoch."""

import warnings

import sklearn
from sklearn.linear_model import SGDRegressor
from sklearn.neural_network import MLPClassifier

from harness import Trained, run

warnings.filterwarnings("ignore", category=UserWarning)


class Sklearn:
    def __init__(self, work, data, _variant):
        self.work = work
        self.x, self.y, *self.held_out = data

    def train(self, epochs):
        work = self.work
        if work.loss == "mse":
            # Its loss is half the squared error, and the steps on single rows of a batch must add up to one
            # step of the others.
            rate = 2 * work.lr / work.batch
            model = SGDRegressor(penalty=None, learning_rate="constant", eta0=rate, max_iter=epochs, tol=None)
            model.fit(self.x, self.y.ravel())
            pairs = [self.held_out] if self.held_out else []
            return Trained([], [float(((model.predict(x) - y.ravel()) ** 2).mean()) for x, y in pairs])
        model = MLPClassifier(
            work.widths[1:-1],
            solver=work.optimizer,
            alpha=0.0,
            batch_size=work.batch,
            learning_rate_init=work.lr,
            max_iter=epochs,
            tol=0.0,
            n_iter_no_change=epochs + 1,
            momentum=0.0,
            nesterovs_momentum=False,
            random_state=0,
        )
        model.fit(self.x, self.y)
        return Trained(model.loss_curve_[-1:])


if __name__ == "__main__":
    run(Sklearn, {"scikit-learn": sklearn.__version__})
