"""What of a config has no meaning for a model that is given from Python: refused by name, never passed over."""

from distxcept.config.schema import Config, ModelSection
from distxcept.errors import ConfigError

_ITS_OWN = {
    "width": "it has its own",
    "middle_blocks": "it has its own",
    "dropout": "its Dropout layers have their own rates",
    "weights": "it starts from the values that it has",
    "freeze": "set layer.trainable = False in it",
    "batchnorm_momentum": "its BatchNormalization layers have their own",
}


def overrides_for_own_model(config: Config) -> list[str]:
    """What `auto` means, as overrides: nobody knows what the model needs, and its layers are not computed again."""
    for key, reason in _ITS_OWN.items():
        value = getattr(config.model, key)
        if value != ModelSection.model_fields[key].get_default():
            raise ConfigError(
                f"model.{key} is {value}, but the model is given from Python: {reason}; leave out this key"
            )
    if config.memory.remat == "on":
        raise ConfigError(
            "memory.remat is on, but of a model given from Python no part can be computed again; set it to off"
        )
    one_virtual = [f"batch.micro={config.batch.virtual}"] if config.batch.micro == "auto" else []
    return ["memory.remat=off", *one_virtual]
