"""What a comparison was measured on: the CPU, the level, probed peak and bandwidth, versions."""

import datetime
import json
import platform
import subprocess
from importlib import metadata


def output(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def has_bf16():
    """Whether the CPU has instructions for products of bf16, as far as Linux tells."""
    with open("/proc/cpuinfo") as f:
        return bool({"avx512_bf16", "amx_bf16", "bf16"} & set(f.read().split()))


def facts(pantile, threads):
    info = dict(line.split(": ", 1) for line in output(pantile, "info").splitlines()[1:])
    probes = {}
    for n in sorted({1, threads}):
        row = json.loads(output(pantile, "bench", "hstu", "s=16", "d=16", f"threads={n}", "--time", "0.01", "-o", "jsonl"))
        probes[str(n)] = {name: row[name] for name in ("peak_gflops", "read_gbps", "copy_gbps")}
    versions = dict(python=platform.python_version(), pantile=output(pantile, "--version").split()[1])
    for name in ("torch", "numpy", "onnxruntime", "fbgemm-gpu-cpu"):
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions[name] = "not installed"
    return dict(cpu=info["cpu"], levels=info["levels"], level=info["level"], threads=threads, system=platform.platform(),
                date=datetime.date.today().isoformat(), versions=versions, probes=probes)
