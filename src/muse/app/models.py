"""The rules of this build, and the client of a model."""

import os
from pathlib import Path

from muse.config import Config, provider_of
from muse.decide.context import RULES_VERSION, Builder, Rules
from muse.effect.protocol import Model
from muse.errors import MissingKey
from muse.event.content import Settings


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


def model_of(config: Config, settings: Settings) -> Model:
    """The client for the settings' provider. Raises `MissingKey` naming the variable to set."""
    if settings.dialect == "scripted":
        from muse.effect.model.scripted import ScriptedModel, load_script

        return ScriptedModel(load_script(Path(settings.model)))
    from muse.effect.model.wire import Endpoint, Timeouts, make_model

    _, provider, _ = provider_of(config, f"{settings.provider}/{settings.model}")
    key = os.environ.get(provider.api_key_env, "") if provider.api_key_env else ""
    if provider.api_key_env and not key:
        raise MissingKey(
            f"no key for {settings.provider}: {provider.api_key_env} is not set",
            hint=f"export {provider.api_key_env}=…, or choose a local server: -m ollama/MODEL",
        )
    endpoint = Endpoint(
        name=settings.provider, dialect=settings.dialect, base_url=provider.base_url, api_key=key,
        timeouts=Timeouts(read_seconds=provider.timeout),
    )  # fmt: skip
    return make_model(endpoint)
