"""Convolutions and dense layers of nine networks, by hand from their publications: (side, outputs, inputs, kernel, times).

`side` is that of the layer's square output, `inputs` the channels of one group. A dense layer has the side 1.
"""

from __future__ import annotations

from collections.abc import Sequence

Layer = tuple[int, int, int, int, int]


def macs(layers: Sequence[Layer]) -> int:
    return sum(
        side * side * outputs * inputs * kernel * kernel * times for side, outputs, inputs, kernel, times in layers
    )


def _googlenet(side: int, inputs: int, widths: Sequence[int]) -> list[Layer]:
    """Inception module of GoogLeNet: 1x1, 3x3 behind a 1x1, 5x5 behind a 1x1, 1x1 behind a pool."""
    pointwise, reduced, three, narrow, five, pool = widths
    return [
        (side, pointwise, inputs, 1, 1),
        (side, reduced, inputs, 1, 1),
        (side, three, reduced, 3, 1),
        (side, narrow, inputs, 1, 1),
        (side, five, narrow, 5, 1),
        (side, pool, inputs, 1, 1),
    ]


def _normalized(side: int, inputs: int, widths: Sequence[int]) -> list[Layer]:
    """Module of the Inception with batch normalisation: the 5x5 is two 3x3; without 1x1 and pool it halves the side."""
    pointwise, reduced, three, narrow, double, pool = widths
    out = side if pointwise else side // 2
    layers = [
        (side, reduced, inputs, 1, 1),
        (out, three, reduced, 3, 1),
        (side, narrow, inputs, 1, 1),
        (side, double, narrow, 3, 1),
        (out, double, double, 3, 1),
    ]
    return [*layers, (side, pointwise, inputs, 1, 1), (side, pool, inputs, 1, 1)] if pointwise else layers


def _resnet() -> list[Layer]:
    layers: list[Layer] = [(112, 64, 3, 7, 1), (1, 1000, 2048, 1, 1)]
    channels = 64
    for side, width, blocks in ((56, 64, 3), (28, 128, 4), (14, 256, 6), (7, 512, 3)):
        # The stride is in the 3x3 of the first block: its 1x1 still has the side before.
        before = side if width == 64 else 2 * side
        layers += [
            (before, width, channels, 1, 1),
            (side, width, 4 * width, 1, blocks - 1),
            (side, width, width, 3, blocks),
            (side, 4 * width, width, 1, blocks),
            (side, 4 * width, channels, 1, 1),
        ]
        channels = 4 * width
    return layers


def _densenet() -> list[Layer]:
    layers: list[Layer] = [(112, 64, 3, 7, 1), (1, 1000, 1024, 1, 1)]
    channels = 64
    for side, count in ((56, 6), (28, 12), (14, 24), (7, 16)):
        for _ in range(count):
            layers += [(side, 128, channels, 1, 1), (side, 32, 128, 3, 1)]
            channels += 32
        if side > 7:
            layers.append((side, channels // 2, channels, 1, 1))
            channels //= 2
    return layers


def _shufflenet(groups: int = 4) -> list[Layer]:
    layers: list[Layer] = [(112, 24, 3, 3, 1), (1, 1000, 544, 1, 1)]
    inputs = 24
    for side, outputs, units in ((28, 136, 4), (14, 272, 8), (7, 544, 4)):
        for unit in range(units):
            before, out = (2 * side, outputs - inputs) if unit == 0 else (side, outputs)
            # The bottleneck is narrower than the output only in the first unit, whose output is joined to its input.
            width = {24: 112, 136: 136, 272: 272}[inputs] if unit == 0 else outputs
            layers += [
                (before, width, inputs // groups, 1, 1),
                (side, width, 1, 3, 1),
                (side, out, width // groups, 1, 1),
            ]
            inputs = outputs
    return layers


NETWORKS: dict[str, Sequence[Layer]] = {
    "bvlc_alexnet": [
        (54, 96, 3, 11, 1), (26, 256, 48, 5, 1), (12, 384, 256, 3, 1), (12, 384, 192, 3, 1), (12, 256, 192, 3, 1),
        (1, 4096, 9216, 1, 1), (1, 4096, 4096, 1, 1), (1, 1000, 4096, 1, 1),
    ],
    "zfnet512": [
        (109, 96, 3, 7, 1), (25, 256, 96, 5, 1), (12, 512, 256, 3, 1), (12, 512, 512, 3, 2),
        (1, 4096, 18432, 1, 1), (1, 1024, 4096, 1, 1), (1, 1000, 1024, 1, 1),
    ],
    "vgg19": [
        (224, 64, 3, 3, 1), (224, 64, 64, 3, 1), (112, 128, 64, 3, 1), (112, 128, 128, 3, 1), (56, 256, 128, 3, 1),
        (56, 256, 256, 3, 3), (28, 512, 256, 3, 1), (28, 512, 512, 3, 3), (14, 512, 512, 3, 4),
        (1, 4096, 25088, 1, 1), (1, 4096, 4096, 1, 1), (1, 1000, 4096, 1, 1),
    ],
    "squeezenet": [
        (111, 64, 3, 3, 1), (13, 1000, 512, 1, 1),
        *((side, narrow, inputs, 1, 1) for side, narrow, inputs in (
            (55, 16, 64), (55, 16, 128), (27, 32, 128), (27, 32, 256), (13, 48, 256), (13, 48, 384), (13, 64, 384), (13, 64, 512),
        )),
        *((side, 4 * narrow, narrow, kernel, 2) for side, narrow in ((55, 16), (27, 32), (13, 48), (13, 64)) for kernel in (1, 3)),
    ],
    "inception_v1": [
        (112, 64, 3, 7, 1), (55, 64, 64, 1, 1), (55, 192, 64, 3, 1), (1, 1000, 1024, 1, 1),
        *_googlenet(27, 192, (64, 96, 128, 16, 32, 32)), *_googlenet(27, 256, (128, 128, 192, 32, 96, 64)),
        *_googlenet(13, 480, (192, 96, 208, 16, 48, 64)), *_googlenet(13, 512, (160, 112, 224, 24, 64, 64)),
        *_googlenet(13, 512, (128, 128, 256, 24, 64, 64)), *_googlenet(13, 512, (112, 144, 288, 32, 64, 64)),
        *_googlenet(13, 528, (256, 160, 320, 32, 128, 128)), *_googlenet(6, 832, (256, 160, 320, 32, 128, 128)),
        *_googlenet(6, 832, (384, 192, 384, 48, 128, 128)),
    ],
    "inception_v2": [
        (112, 64, 3, 7, 1), (56, 64, 64, 1, 1), (56, 192, 64, 3, 1), (1, 1000, 1024, 1, 1),
        *_normalized(28, 192, (64, 64, 64, 64, 96, 32)), *_normalized(28, 256, (64, 64, 96, 64, 96, 64)),
        *_normalized(28, 320, (0, 128, 160, 64, 96, 0)), *_normalized(14, 576, (224, 64, 96, 96, 128, 128)),
        *_normalized(14, 576, (192, 96, 128, 96, 128, 128)), *_normalized(14, 576, (160, 128, 160, 128, 160, 96)),
        *_normalized(14, 576, (96, 128, 192, 160, 192, 96)), *_normalized(14, 576, (0, 128, 192, 192, 256, 0)),
        *_normalized(7, 1024, (352, 192, 320, 160, 224, 128)), *_normalized(7, 1024, (352, 192, 320, 192, 224, 128)),
    ],
    "resnet50": _resnet(),
    "densenet121": _densenet(),
    "shufflenet": _shufflenet(),
}  # fmt: skip
