"""Peak rates published by NVIDIA, by the node label `nvidia.com/gpu.product`. Pure.

The peaks are those of the products' data sheets: dense (without sparsity), at the clock rates that the data sheets
assume. No workload reaches them. If the product supports TF32 on tensor cores, FP32 has the rate of TF32, because
libraries use TF32 for FP32.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from halcyon_measure.errors import ModelError
from halcyon_measure.results.figure import Figure
from halcyon_measure.results.sections.roofline import Peak


@dataclass(frozen=True)
class Product:
    """Peak rates of one GPU product: compute in 1e12 operations per second, memory in 1e9 bytes per second."""

    fp32: float
    fp16: float
    int8: float | None
    bandwidth: float
    sheet: str
    """NVIDIA's data sheet with these figures."""


_AMPERE, _HOPPER, _ADA = "A100 Tensor Core GPU", "H100 Tensor Core GPU", "L40S GPU"
PRODUCTS: Mapping[str, Product] = {
    "Tesla-T4": Product(8.1, 65, 130, 320, "T4 Tensor Core GPU"),
    "Tesla-V100-SXM2-16GB": Product(15.7, 125, None, 900, "V100 Tensor Core GPU"),
    "Tesla-V100-SXM2-32GB": Product(15.7, 125, None, 900, "V100 Tensor Core GPU"),
    "Tesla-V100-PCIE-16GB": Product(14, 112, None, 900, "V100 Tensor Core GPU"),
    "NVIDIA-A2": Product(9, 18, 36, 200, "A2 Tensor Core GPU"),
    "NVIDIA-A10": Product(62.5, 125, 250, 600, "A10 Tensor Core GPU"),
    "NVIDIA-A30": Product(82, 165, 330, 933, "A30 Tensor Core GPU"),
    "NVIDIA-A40": Product(74.8, 149.7, 299.3, 696, "A40 GPU"),
    "NVIDIA-A100-PCIE-40GB": Product(156, 312, 624, 1555, _AMPERE),
    "NVIDIA-A100-SXM4-40GB": Product(156, 312, 624, 1555, _AMPERE),
    "NVIDIA-A100-80GB-PCIe": Product(156, 312, 624, 1935, _AMPERE),
    "NVIDIA-A100-SXM4-80GB": Product(156, 312, 624, 2039, _AMPERE),
    "NVIDIA-L4": Product(60, 121, 242, 300, "L4 Tensor Core GPU"),
    "NVIDIA-L40": Product(90.5, 181.05, 362, 864, "L40 GPU"),
    "NVIDIA-L40S": Product(183, 362.05, 733, 864, _ADA),
    "NVIDIA-H100-PCIe": Product(378, 756, 1513, 2000, _HOPPER),
    "NVIDIA-H100-80GB-HBM3": Product(494.5, 989.5, 1979, 3350, _HOPPER),
    "NVIDIA-H200": Product(494.5, 989.5, 1979, 4800, "H200 Tensor Core GPU"),
}


def peaks(name: str, datatype: str) -> tuple[Peak, Peak]:
    """Return the published peaks of compute, for this data type, and of memory.

    Raises:
        ModelError: the product isn't in the table, or has no such data type.
    """
    product = PRODUCTS.get(name)
    if product is None:
        part = "a part of a GPU has no published peaks; " if "-MIG-" in name else ""
        raise ModelError(f"--gpu {name}: {part}the known products are {', '.join(PRODUCTS)}")
    rates = {
        "FP32": product.fp32,
        "FP16": product.fp16,
        "BF16": product.fp16,
        "INT8": product.int8,
        "UINT8": product.int8,
    }
    rate = rates.get(datatype)
    if rate is None:
        known = ", ".join(kind for kind, value in rates.items() if value is not None)
        raise ModelError(
            f"--gpu {name}: no peak is published for {datatype or 'an unknown type'}; there is one for {known}"
        )
    source = f"NVIDIA's data sheet of the {product.sheet}"
    how = f"{name}, dense"
    return (
        Peak(kind="published", rate=Figure(value=1e12 * rate, unit="FLOP/s", n=1, source=source), cv=None, how=how),
        Peak(kind="published", rate=Figure(value=1e9 * product.bandwidth, unit="bytes/s", n=1, source=source), cv=None, how=how),
    )  # fmt: skip
