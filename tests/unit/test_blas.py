"""Matrix products whose sums do not depend on the number of rows."""

import pytest
import torch

from sestina.blas import MODE, choose_sums, strict_mode

WIDE = "avx avx2 avx512f avx512dq avx512cd avx512bw avx512vl"


def described(vendor: str, flags: str) -> str:
    one = f"processor\t: 0\nvendor_id\t: {vendor}\nmodel name\t: any\nflags\t\t: fpu {flags} sse2\npower management:\n"
    return one + "\n" + one.replace("processor\t: 0", "processor\t: 1")


@pytest.mark.parametrize(
    ("vendor", "flags", "mode"),
    [
        ("GenuineIntel", WIDE, "AVX512,STRICT"),
        ("GenuineIntel", "avx avx2 avx512f", "AVX2,STRICT"),
        ("GenuineIntel", "avx", None),
        ("AuthenticAMD", WIDE, None),
    ],
)
def test_the_mode_is_for_intels_cpus_and_what_they_can(vendor, flags, mode, tmp_path):
    cpu = tmp_path / "cpuinfo"
    cpu.write_text(described(vendor, flags))
    assert strict_mode(cpu.read_text()) == mode
    environment: dict[str, str] = {}
    choose_sums(environment, cpu)
    assert environment == ({} if mode is None else {MODE: mode})


def test_a_mode_that_is_set_stays(tmp_path):
    cpu = tmp_path / "cpuinfo"
    cpu.write_text(described("GenuineIntel", WIDE))
    environment = {MODE: "AUTO"}
    choose_sums(environment, cpu)
    assert environment == {MODE: "AUTO"}


def test_a_cpu_that_does_not_describe_itself_is_left_alone(tmp_path):
    environment: dict[str, str] = {}
    choose_sums(environment, tmp_path / "none")
    assert environment == {}
    assert strict_mode("Processor: ARMv8\nFeatures: fp asimd\n") is None


@pytest.mark.parametrize(("inner", "outer"), [(64, 192), (96, 64), (256, 512), (896, 1152)])
def test_a_row_has_the_same_bits_in_any_batch(inner, outer):
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(300, inner, generator=generator)
    weight = torch.randn(outer, inner, generator=generator).T
    all_at_once = torch.mm(rows, weight)
    for size in (*range(4, 70), 100, 128, 200, 256, 299):
        assert torch.equal(torch.mm(rows[:size], weight), all_at_once[:size])
