"""The GGUF container: values come back as written; damaged and foreign files are refused by name."""

from __future__ import annotations

import struct
from pathlib import Path

import gguf
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.errors import CheckpointError
from octavo.models.gguf_file import GGUFFile
from octavo.quant import dequantise


def write(path: Path, *, endian: gguf.GGUFEndian = gguf.GGUFEndian.LITTLE) -> Path:
    """A file with every kind of metadata value and two tensors."""
    writer = gguf.GGUFWriter(path, "llama", endianess=endian)
    writer.add_uint8("k.u8", 200)
    writer.add_int8("k.i8", -100)
    writer.add_uint16("k.u16", 60000)
    writer.add_int16("k.i16", -30000)
    writer.add_uint32("k.u32", 4_000_000_000)
    writer.add_int32("k.i32", -2_000_000_000)
    writer.add_uint64("k.u64", 2**63 + 1)
    writer.add_int64("k.i64", -(2**62))
    writer.add_float32("k.f32", 0.5)
    writer.add_float64("k.f64", 0.1)
    writer.add_bool("k.bool", True)
    writer.add_string("k.string", "naïve 語 🐙")
    writer.add_array("k.strings", ["", "▁a", "\n"])
    writer.add_array("k.floats", [0.25, -1.0])
    writer.add_array("k.ints", [1, -2])
    writer.add_array("k.bools", [True, False])
    writer.add_tensor("matrix", np.arange(12, dtype=np.float32).reshape(3, 4))
    writer.add_tensor("vector", np.array([1, 2, 3], np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_metadata_of_every_type_comes_back(tmp_path: Path) -> None:
    metadata = GGUFFile(write(tmp_path / "m.gguf")).metadata
    assert {key: value for key, value in metadata.items() if key.startswith("k.")} == {
        "k.u8": 200,
        "k.i8": -100,
        "k.u16": 60000,
        "k.i16": -30000,
        "k.u32": 4_000_000_000,
        "k.i32": -2_000_000_000,
        "k.u64": 2**63 + 1,
        "k.i64": -(2**62),
        "k.f32": 0.5,
        "k.f64": 0.1,
        "k.bool": True,
        "k.string": "naïve 語 🐙",
        "k.strings": ["", "▁a", "\n"],
        "k.floats": [0.25, -1.0],
        "k.ints": [1, -2],
        "k.bools": [True, False],
    }


def test_tensors_have_rows_outermost(tmp_path: Path) -> None:
    file = GGUFFile(write(tmp_path / "m.gguf"))
    assert {name: (entry.shape, entry.format.name) for name, entry in file.tensors.items()} == {
        "matrix": ((3, 4), "f32"),
        "vector": ((3,), "f16"),
    }
    np.testing.assert_array_equal(dequantise(file.tensor("matrix")), np.arange(12).reshape(3, 4))
    np.testing.assert_array_equal(dequantise(file.tensor("vector")), [1, 2, 3])


def test_tensors_are_read_only_views_of_the_file(tmp_path: Path) -> None:
    data = GGUFFile(write(tmp_path / "m.gguf")).tensor("matrix").data
    assert not data.flags.owndata
    with pytest.raises(ValueError, match="read-only"):
        data[0, 0] = 1


def test_another_alignment_is_honoured(tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "llama")
    writer.add_custom_alignment(4096)
    writer.add_tensor("a", np.ones(3, np.float32))
    writer.add_tensor("b", np.full(3, 7, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    file = GGUFFile(tmp_path / "m.gguf")
    assert file.tensors["b"].begin % 4096 == 0
    np.testing.assert_array_equal(dequantise(file.tensor("b")), [7, 7, 7])


def test_a_real_vocabulary_is_read_exactly(smollm2_gguf: Path) -> None:
    file, reader = GGUFFile(smollm2_gguf), gguf.GGUFReader(smollm2_gguf)
    own = {key for key in reader.fields if not key.startswith("GGUF.")}
    assert set(file.metadata) == own
    for key in own:
        assert file.metadata[key] == reader.fields[key].contents(), key


@pytest.mark.parametrize(
    "content", [b"", b"GG", b"PK\x03\x04 a zip archive", b"{}" * 20], ids=["empty", "short", "zip", "json"]
)
def test_a_foreign_file_is_refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match=r"m\.gguf is no GGUF file"):
        GGUFFile(path)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"m\.gguf cannot be read"):
        GGUFFile(tmp_path / "m.gguf")


def test_a_big_endian_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="big-endian"):
        GGUFFile(write(tmp_path / "m.gguf", endian=gguf.GGUFEndian.BIG))


@pytest.mark.parametrize("version", [0, 1, 4])
def test_another_version_is_refused(version: int, tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", version, 0, 0))
    with pytest.raises(CheckpointError, match=f"version {version}; supported: 2, 3"):
        GGUFFile(path)


@given(data=st.data())
def test_every_truncation_is_refused(data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    whole = write(tmp_path_factory.mktemp("gguf") / "m.gguf")
    content = whole.read_bytes()
    file = GGUFFile(whole)
    end = max(entry.end for entry in file.tensors.values())  # after it, only padding
    cut = data.draw(st.integers(4, end - 1))
    del file
    whole.write_bytes(content[:cut])
    with pytest.raises(CheckpointError, match="truncated"):
        GGUFFile(whole)


def test_an_absurd_count_fails_at_once_as_truncation(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    key = struct.pack("<Q", 1) + b"k"
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + key + struct.pack("<IIQ", 9, 8, 2**60))
    with pytest.raises(CheckpointError, match="truncated"):
        GGUFFile(path)


def test_an_unknown_tensor_type_names_tensor_and_type(tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "llama")
    writer.add_tensor("blk.0.attn_q.weight", np.zeros((2, 98), np.uint8), raw_dtype=gguf.GGMLQuantizationType.IQ3_XXS)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(CheckpointError, match=r"blk\.0\.attn_q\.weight has type IQ3_XXS.*supported: F32.*Q6_K"):
        GGUFFile(tmp_path / "m.gguf")


def test_a_type_that_has_no_name_is_given_by_number(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    entry = struct.pack("<Q", 1) + b"t" + struct.pack("<IQIQ", 1, 32, 9999, 0)
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 1, 0) + entry + bytes(256))
    with pytest.raises(CheckpointError, match="tensor t has type number 9999"):
        GGUFFile(path)


def split_gguf(folder: Path, count: int = 3) -> list[Path]:
    """A file in parts, as gguf-split names and numbers them: tensor t<i> of i's in part i."""
    paths = [folder / f"m-{number:05d}-of-{count:05d}.gguf" for number in range(1, count + 1)]
    for index, path in enumerate(paths):
        writer = gguf.GGUFWriter(path, "llama")
        writer.add_uint16("split.no", index)
        writer.add_uint16("split.count", count)
        writer.add_int32("split.tensors.count", count)
        writer.add_tensor(f"t{index}", np.full((2, 4), index, np.float32))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
    return paths


def test_a_split_file_is_read_from_its_first_part(tmp_path: Path) -> None:
    file = GGUFFile(split_gguf(tmp_path)[0])
    assert set(file.tensors) == {"t0", "t1", "t2"}
    for index in range(3):
        np.testing.assert_array_equal(dequantise(file.tensor(f"t{index}")), np.full((2, 4), index, np.float32))


def test_a_part_other_than_the_first_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="is part 2 of 3 of a split GGUF; give the path of the first part"):
        GGUFFile(split_gguf(tmp_path)[1])


def test_a_missing_part_is_named(tmp_path: Path) -> None:
    paths = split_gguf(tmp_path)
    paths[2].unlink()
    with pytest.raises(CheckpointError, match=r"lacks 1 of its 3 parts: m-00003-of-00003\.gguf"):
        GGUFFile(paths[0])


def test_a_first_part_of_another_name_is_refused_with_the_name(tmp_path: Path) -> None:
    path = split_gguf(tmp_path)[0].rename(tmp_path / "m.gguf")
    with pytest.raises(CheckpointError, match=r"its name must be <name>-00001-of-00003\.gguf"):
        GGUFFile(path)


def test_a_part_in_the_place_of_another_is_refused(tmp_path: Path) -> None:
    paths = split_gguf(tmp_path)
    paths[2].write_bytes(paths[1].read_bytes())
    with pytest.raises(CheckpointError, match=r"00003-of-00003\.gguf has split\.no 1 .*; expected 2 and 3"):
        GGUFFile(paths[0])


@pytest.mark.parametrize("kind", [13, 255])
def test_an_unknown_metadata_type_is_damage(kind: int, tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<Q", 1) + b"k" + struct.pack("<IQ", kind, 0))
    with pytest.raises(CheckpointError, match=f"unknown type {kind}"):
        GGUFFile(path)


def test_text_that_is_not_utf8_is_damage(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(
        b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<Q", 2) + b"\xff\xfe" + struct.pack("<IQ", 4, 0)
    )
    with pytest.raises(CheckpointError, match="not UTF-8"):
        GGUFFile(path)


def test_arrays_in_arrays_without_end_are_damage(tmp_path: Path) -> None:
    nested = struct.pack("<IQ", 9, 1) * 100_000
    name = b"deep"
    header = b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<Q", len(name)) + name + struct.pack("<I", 9)
    (tmp_path / "m.gguf").write_bytes(header + nested)
    with pytest.raises(CheckpointError, match="arrays in arrays without end under deep"):
        GGUFFile(tmp_path / "m.gguf")


def test_a_tensor_type_that_is_not_read_is_refused_with_those_that_are(tmp_path: Path) -> None:
    """GGUF's own: int4 with groups is no type that a GGUF could have."""
    path = tmp_path / "model.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    data = np.zeros((32, 66), np.uint8)
    writer.add_tensor("x", data, raw_dtype=gguf.GGMLQuantizationType.TQ2_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(CheckpointError, match=r"tensor x has type TQ2_0.*supported: ") as caught:
        GGUFFile(path)
    named = str(caught.value).partition("supported: ")[2].rstrip(".").split(", ")
    assert {"F32", "BF16", "Q4_0", "Q6_K"} <= set(named) <= set(gguf.GGMLQuantizationType.__members__)
