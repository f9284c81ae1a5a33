"""One trial as Hydra runs it."""

from pathlib import Path

import hydra
from hydra.core.config_store import ConfigStore
from hydra.core.hydra_config import HydraConfig

import work

DEFAULTS = [{"override hydra/launcher": "joblib"}, "_self_"]
CONFIG = {"defaults": DEFAULTS, "job": "", "data": "", "lr": 0.1, "width": 32, "seed": 0}
ConfigStore.instance().store(name="config", node=CONFIG)


@hydra.main(version_base=None, config_name="config")
def main(config):
    more = {"width": config.width, "seed": config.seed} if config.job == "digits" else {}
    value = work.train(work.load(config.data, config.job), config.job, config.lr, **more)
    Path(HydraConfig.get().runtime.output_dir, "value").write_text(repr(value))


if __name__ == "__main__":
    main()
