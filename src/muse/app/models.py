"""The rules of this build, and the clients of models."""

import os
from pathlib import Path

from muse.config import BUILT_IN, Config, Provider, provider_of
from muse.decide.context import RULES_VERSION, Builder, Rules, session_ref
from muse.effect.protocol import Model
from muse.errors import MissingKey
from muse.event.content import ModelRef, Settings


def rules() -> Rules:
    """The rules of this build, with every dialect's builder."""
    from muse.effect.model import anthropic, openai, scripted

    return Rules(
        version=RULES_VERSION,
        builders={
            "anthropic": Builder(anthropic.BUILDER, anthropic.build),
            "openai": Builder(openai.BUILDER, openai.build),
            "scripted": Builder(scripted.BUILDER, scripted.build),
        },
    )


def usable_providers(config: Config) -> dict[str, Provider]:
    """The providers that agents may be given models of: those with their key present, or that need none."""
    known = BUILT_IN | config.providers
    return {
        name: one
        for name, one in known.items()
        if not one.chosen_only and (not one.api_key_env or os.environ.get(one.api_key_env))
    }


def model_of(config: Config, settings: Settings) -> Model:
    """The client for the settings' model. Raises `MissingKey` naming the variable to set, also for a fallback's."""
    for ref in settings.fallbacks:
        client_of(config, ref)
    return client_of(config, session_ref(settings))


def client_of(config: Config, ref: ModelRef) -> Model:
    """The client for a model. Raises `MissingKey` naming the variable to set, `ConfigError` for no such provider."""
    if ref.dialect == "scripted":
        from muse.effect.model.scripted import ScriptedModel, load_script

        return ScriptedModel(load_script(Path(ref.model)))
    from muse.effect.model.wire import Endpoint, Timeouts, make_model

    _, provider, _ = provider_of(config, ref.name)
    key = os.environ.get(provider.api_key_env, "") if provider.api_key_env else ""
    if provider.api_key_env and not key:
        raise MissingKey(
            f"no key for {ref.provider}: {provider.api_key_env} is not set",
            hint=f"export {provider.api_key_env}=…, or choose a local server: -m ollama/MODEL",
        )
    endpoint = Endpoint(
        name=ref.provider, dialect=ref.dialect, base_url=provider.base_url, api_key=key,
        timeouts=Timeouts(read_seconds=provider.timeout),
    )  # fmt: skip
    return make_model(endpoint)


class Clients:
    """The clients of one host, each made when it is first asked. Of a provider there is one for all its models."""

    def __init__(self, config: Config, own: ModelRef, client: Model) -> None:
        self._config = config
        self._clients = {_place(own): client}

    def __call__(self, ref: ModelRef) -> Model:
        """The client for a model. Raises as `client_of`."""
        place = _place(ref)
        if place not in self._clients:
            self._clients[place] = client_of(self._config, ref)
        return self._clients[place]


def clients_of(config: Config, settings: Settings, given: Model | None) -> tuple[Model, Clients | None]:
    """The session's own client, and where to have those of other models. One that is `given` is asked for all."""
    if given is not None:
        return given, None
    own = model_of(config, settings)
    return own, Clients(config, session_ref(settings), own)


def _place(ref: ModelRef) -> tuple[str, str, str]:
    return ref.provider, ref.dialect, ref.model if ref.dialect == "scripted" else ""
