"""The lines of the charts can be told apart: by colour, in grey, and for colour-blind eyes. Computed from the style sheet."""

import itertools
import re
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

CSS = (Path(__file__).parents[3] / "operator/halcyon/dashboard/static/app.css").read_text()
Colour = NDArray[np.float64]
MIN_DIFFERENCE = 0.15
"""Minimum distance of two lines in Oklab; 0.02 is just noticeable."""
MIN_LUMINANCE_RATIO = 1.5
"""Minimum contrast between two lines (WCAG's ratio), which is what remains of them in grey."""
MIN_CONTRAST = 3.0
"""Minimum contrast of a line and its background (WCAG 1.4.11)."""
# Machado, Oliveira and Fernandes 2009, severity 1.0, for linear RGB.
EYES = {
    "normal": np.eye(3),
    "protanopia": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "deuteranopia": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
    "tritanopia": np.array(
        [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]]
    ),
}
THEMES = ("light", "dark")


def colour(name: str, theme: str) -> Colour:
    """A custom property of the style sheet, in linear RGB."""
    match = re.search(rf"--{name}: light-dark\((#\w{{6}}), (#\w{{6}})\)", CSS)
    assert match is not None, name
    text = match[1 + THEMES.index(theme)]
    value = np.array([int(text[at : at + 2], 16) for at in (1, 3, 5)]) / 255
    return np.where(value <= 0.04045, value / 12.92, ((value + 0.055) / 1.055) ** 2.4)


def oklab(linear: Colour) -> Colour:
    to_lms = [[0.4122214708, 0.5363325363, 0.0514459929], [0.2119034982, 0.6806995451, 0.1073969566]]
    cones = np.cbrt(np.array([*to_lms, [0.0883024619, 0.2817188376, 0.6299787005]]) @ np.clip(linear, 0, 1))
    to_lab = [[0.2104542553, 0.7936177850, -0.0040720468], [1.9779984951, -2.4285922050, 0.4505937099]]
    return np.array([*to_lab, [0.0259040371, 0.7827717662, -0.8086757660]]) @ cones


def contrast(a: Colour, b: Colour) -> float:
    low, high = sorted(float(colour @ [0.2126, 0.7152, 0.0722]) for colour in (a, b))
    return (high + 0.05) / (low + 0.05)


def lines(theme: str) -> list[Colour]:
    numbers = sorted(set(re.findall(r"--series-(\d):", CSS)))
    assert len(numbers) >= 3
    return [colour(f"series-{number}", theme) for number in numbers]


@pytest.mark.parametrize("eye", EYES)
@pytest.mark.parametrize("theme", THEMES)
def test_each_two_lines_differ_for_every_eye(theme: str, eye: str) -> None:
    for a, b in itertools.combinations(lines(theme), 2):
        assert np.linalg.norm(oklab(EYES[eye] @ a) - oklab(EYES[eye] @ b)) >= MIN_DIFFERENCE


@pytest.mark.parametrize("theme", THEMES)
def test_each_two_lines_differ_in_grey(theme: str) -> None:
    for a, b in itertools.combinations(lines(theme), 2):
        assert contrast(a, b) >= MIN_LUMINANCE_RATIO


@pytest.mark.parametrize("theme", THEMES)
def test_each_line_stands_out_from_the_background(theme: str) -> None:
    for line in lines(theme):
        assert contrast(line, colour("back", theme)) >= MIN_CONTRAST


def test_each_line_of_a_chart_has_its_own_style() -> None:
    source = (Path(__file__).parents[3] / "operator/halcyon/dashboard/static/model.js").read_text()
    charts = re.findall(r"new Chart\(\{(.*?)cursor", source, re.DOTALL)
    assert len(charts) >= 8
    for chart in charts:
        styles = [style for style in re.findall(r'style: "([^"]+)"', chart) if style != "limit"]
        assert len(styles) == len(set(styles)), chart
        assert all(word in {"first", "second", "third", "area"} for style in styles for word in style.split())
