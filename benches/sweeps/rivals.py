"""Runs one rival's whole sweep on two workers: `rivals.py NAME JOB DATA TRIALS SEED`. Prints one line of
JSON. The trials of the job `halving` are drawn by a sampler with this seed, so its `axes` is the number of
trials."""

import itertools
import json
import os
import sys
import tempfile

import work


def optuna(job, data, axes, seed):
    import optuna as library

    library.logging.set_verbosity(library.logging.ERROR)
    data = work.load(data, job)
    if job == "halving":
        return optuna_halving(library, data, axes, seed)
    names = {"direction": "maximize" if job == "digits" else "minimize"}
    study = library.create_study(sampler=library.samplers.GridSampler(axes, seed=0), **names)
    pick = lambda trial: {name: trial.suggest_categorical(name, values) for name, values in axes.items()}
    study.optimize(lambda trial: work.train(data, job, **pick(trial)), n_jobs=2)
    return [trial.value for trial in study.trials], library.__version__


def optuna_halving(library, data, trials, seed):
    pruner = library.pruners.SuccessiveHalvingPruner(min_resource=1, reduction_factor=3)
    study = library.create_study(sampler=library.samplers.TPESampler(seed=seed), pruner=pruner, direction="maximize")

    def run(trial):
        def report(epoch, value):
            trial.report(value, epoch)
            if trial.should_prune():
                raise library.TrialPruned()

        lr = trial.suggest_float("lr", *work.LR, log=True)
        return work.train(data, "halving", lr, trial.suggest_int("width", *work.WIDTH), seed, report)

    study.optimize(run, n_trials=trials, n_jobs=2)
    return [max(trial.intermediate_values.values()) for trial in study.trials], library.__version__


def ray(job, data, axes, seed):
    import ray as library
    from ray import tune

    here = os.path.dirname(os.path.abspath(__file__))
    library.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR",
                 runtime_env={"env_vars": {"PYTHONPATH": here}})
    loaded = library.put(work.load(data, job))
    report = lambda epoch, value: tune.report({"value": value})
    if job == "halving":
        run = lambda point: work.train(library.get(loaded), job, **point, seed=seed, report=report)
        scheduler = tune.schedulers.ASHAScheduler(max_t=work.EPOCHS[job], grace_period=1, reduction_factor=3)
        more = {"metric": "value", "mode": "max", "num_samples": axes, "scheduler": scheduler}
        axes = {"lr": tune.loguniform(*work.LR), "width": tune.randint(work.WIDTH[0], work.WIDTH[1] + 1)}
    else:
        run = lambda point: report(0, work.train(library.get(loaded), job, **point))
        axes, more = {name: tune.grid_search(values) for name, values in axes.items()}, {}
    with tempfile.TemporaryDirectory() as folder:
        config = tune.RunConfig(storage_path=folder, verbose=0)
        tuning = tune.TuneConfig(**more)
        results = tune.Tuner(run, param_space=axes, run_config=config, tune_config=tuning).fit()
        values = [float(work.better(job, result.metrics_dataframe["value"])) for result in results]
    library.shutdown()
    return values, library.__version__


def hydra(job, data, axes, _seed):
    import subprocess

    import hydra as library

    with tempfile.TemporaryDirectory() as folder:
        words = [f"{name}={','.join(str(value) for value in values)}" for name, values in axes.items()]
        places = [f"hydra.sweep.dir={folder}", "hydra.sweep.subdir=${hydra.job.num}"]
        script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "hydra_app.py")
        command = [sys.executable, script, "-m", f"job={job}", f"data={data}", *words, *places]
        subprocess.run([*command, "hydra.launcher.n_jobs=2"], check=True, stdout=subprocess.DEVNULL)
        numbers = range(len(list(itertools.product(*axes.values()))))
        values = [float(open(f"{folder}/{number}/value").read()) for number in numbers]
    return values, library.__version__


def sklearn(job, data, axes, _seed):
    import warnings

    import numpy as np
    import sklearn as library
    from sklearn.model_selection import GridSearchCV, PredefinedSplit
    from sklearn.neural_network import MLPClassifier, MLPRegressor

    os.environ["PYTHONWARNINGS"] = "ignore"
    warnings.simplefilter("ignore")
    x, y, vx, vy = work.load(data, job)
    names = {"lr": "learning_rate_init", "width": "hidden_layer_sizes", "seed": "random_state"}
    grid = {names[name]: [(v,) for v in values] if name == "width" else values for name, values in axes.items()}
    same = {"max_iter": work.EPOCHS[job], "batch_size": work.BATCH[job], "alpha": 0.0, "n_iter_no_change": 1000}
    if job == "digits":
        model, score = MLPClassifier(**same), "accuracy"
    else:
        model, score = MLPRegressor(hidden_layer_sizes=(), solver="sgd", momentum=0.0, **same), "neg_mean_squared_error"
    split = PredefinedSplit([-1] * len(x) + [0] * len(vx))
    search = GridSearchCV(model, grid, scoring=score, cv=split, n_jobs=2, refit=False)
    search.fit(np.concatenate([x, vx]), np.concatenate([y, vy]).ravel())
    return list(abs(search.cv_results_["mean_test_score"])), library.__version__


if __name__ == "__main__":
    name, job, data, trials, seed = sys.argv[1:]
    axes = int(trials) if job == "halving" else work.space(job, int(trials))
    values, version = globals()[name](job, data, axes, int(seed))
    print(json.dumps({"trials": len(values), "best": work.better(job, values), "version": version}))
