"""What a checkpoint's generation_config.json does, where that is said, and how it is ignored."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from octavo import LLM, SamplingParams
from octavo.config import EngineConfig
from octavo.engine import AsyncLLM, start
from octavo.engine.generation import generation_defaults
from octavo.errors import CheckpointError, ConfigError
from octavo.server import ServerSettings, create_app

CONFIG = {"temperature": 0.25, "top_k": 7, "max_new_tokens": 5, "eos_token_id": 2, "do_sample": True, "top_p": None}


def told(config: dict[str, Any], wanted: str = "auto") -> str:
    return generation_defaults(config, Path("model"), wanted).told


def test_what_is_applied_is_said_and_what_is_not_too() -> None:
    assert told(CONFIG) == (
        "defaults of requests from generation_config.json: temperature 0.25, top_k 7, max_new_tokens 5 "
        "(--generation-config none ignores them)"
    )
    assert told({"no_repeat_ngram_size": 3, "num_beams": 1, "suppress_tokens": [], "typical_p": 0.5}) == (
        "not applied of generation_config.json: no_repeat_ngram_size, typical_p"
    )
    assert told({"eos_token_id": [1, 2]}) == told({}) == told({}, "none") == ""
    for ignoring in ("none", "vllm"):
        assert told(CONFIG, ignoring) == "generation_config.json is not applied (--generation-config)"
        assert generation_defaults(CONFIG, Path("model"), ignoring).fields == {}


@pytest.mark.parametrize(
    ("name", "value"),
    [("temperature", "hot"), ("temperature", -1), ("top_k", 0.5), ("top_p", 0), ("max_new_tokens", "5"), ("min_p", 2)],
)
def test_a_value_that_no_request_could_have_is_refused_at_the_start(name: str, value: Any) -> None:
    with pytest.raises(CheckpointError, match=f"generation_config.json has {name} .*--generation-config none"):
        generation_defaults({name: value}, Path("model"), "auto")
    assert generation_defaults({name: value}, Path("model"), "none").fields == {}


def test_a_word_that_is_not_known_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"generation_config 'off' is not known; choose auto, none, vllm"):
        EngineConfig("model", generation_config="off")


@pytest.fixture(scope="module")
def folder(smollm2_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("model")
    for file in smollm2_folder.iterdir():
        if file.name == "model.safetensors":
            (made / file.name).symlink_to(file)
        else:
            shutil.copy(file, made)
    (made / "generation_config.json").write_text(json.dumps(CONFIG))
    return made


@pytest.mark.real_model
@pytest.mark.parametrize("wanted", ["auto", "none"])
async def test_the_server_says_what_it_applies(folder: Path, wanted: str) -> None:
    started = start(
        EngineConfig(str(folder), generation_config=wanted, num_kv_blocks=8), lambda what, done, total: None
    )
    assert started.generation.told == told(CONFIG, wanted)
    llm = AsyncLLM.from_started(started)
    try:
        with TestClient(create_app(llm, ServerSettings())) as client:
            [card] = client.get("/v1/models").json()["data"]
    finally:
        await llm.close()
    applied = {"temperature": 0.25, "top_k": 7, "max_new_tokens": 5}
    assert card["generation_config"] == (applied if wanted == "auto" else {})


@pytest.mark.real_model
def test_calls_without_parameters_take_the_checkpoint_s(folder: Path) -> None:
    llm = LLM(model=folder, num_kv_blocks=8)
    assert llm.get_default_sampling_params() == SamplingParams(temperature=0.25, top_k=7, max_tokens=5)
    [output] = llm.generate("Once upon a time", use_tqdm=False)
    assert len(output.outputs[0].token_ids) == 5
    [output] = llm.generate_iter(["Once upon a time"])
    assert len(output.outputs[0].token_ids) == 5
    plain = LLM(model=folder, num_kv_blocks=8, generation_config="none")
    assert plain.get_default_sampling_params() == SamplingParams()
