"""Quantized Hugging Face folders: what quantization_config promises, and the weights that its tensors hold.

One file per kind of folder. What is not read here is refused when the checkpoint is opened, by its name in config.json.
"""

from octavo.models.quantized.method import Method, quantization_method
from octavo.models.quantized.parts import QuantizedWeight, Stored

__all__ = ["Method", "QuantizedWeight", "Stored", "quantization_method"]
