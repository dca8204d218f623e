#!/usr/bin/env python3
"""Fits one efficiency set per GPU type on at most three published training speeds and predicts the others.

The times are the cost model's: the roofline of every operator of the synthetic program (`swaplab trace synth
--roofline`), with three efficiencies fitted: of matrix products, of attention and of memory. Around them stand
stated rules: tensor-parallel collectives add up, data-parallel ones overlap with computing, a pipeline adds its
bubble, and the host's dispatch times bound from below. Networks and points: configs/workloads/published/points.yaml.
"""

import argparse
import json
import math
import os
import re
import subprocess
import sys
import tempfile

try:
    import yaml
except ImportError:
    sys.exit("error: this Python has no yaml; on Debian: apt-get install python3-yaml, then /usr/bin/python3 "
             "scripts/fit_efficiency.py")

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
NAMES = ("matmul", "attention", "memory")
LEAST, MOST = 0.30, 0.98


FLOOR_NS = 2000   # kernel_floor of the machines


class Program:
    """Runs the generator; equal questions are asked once."""

    def __init__(self, swaplab, folder):
        self.swaplab, self.folder, self.known = swaplab, folder, {}
        self.base = os.path.join(folder, "base.yaml")
        with open(self.base, "w", encoding="utf-8") as f:
            f.write("schema: swaplab/workload@1\nname: point\n")

    def iteration(self, overrides, machine):
        """Summary of the last iteration, with each kernel's limits at 100 % efficiency."""
        key = (tuple(overrides), machine)
        if key not in self.known:
            done = subprocess.run([self.swaplab, "trace", "synth", self.base, *overrides, "--machine", machine,
                                   "--roofline", "--json"], capture_output=True, text=True)
            if done.returncode != 0:
                raise RuntimeError(f"{' '.join(overrides)}: {done.stderr.strip()}")
            self.known[key] = json.loads(done.stdout)
        return self.known[key]


def ring_seconds(collectives, group, bandwidth):
    total = 0.0
    for c in collectives:
        if c["group"] != group:
            continue
        n = c["ranks"]
        rounds = 2 if "allreduce" in c["operator"] else 1
        total += c["count"] * rounds * c["bytes"] * (n - 1) / n / bandwidth
    return total


def value_of(overrides, key, default):
    for text in overrides:
        if text.startswith(key + "="):
            default = text.split("=", 1)[1]
    return default


def stage_seconds(program, overrides, machine, efficiency, network, dispatch):
    """One iteration of one rank, without pipeline bubbles."""
    summary = program.iteration(overrides, machine)
    work = summary["last_training_iteration"]
    classes = {name: c for name, c in work["classes"].items() if name != "collective"}
    matmul, attention, memory = efficiency
    compute = {"matmul": matmul, "attention": attention}
    device = sum(k["count"] * max(k["compute_ns"] / compute.get(k["class"], 0.8), k["memory_ns"] / memory, FLOOR_NS)
                 for k in summary["roofline"] if k["compute_ns"] + k["memory_ns"] > 0) / 1e9
    host = (sum(c["kernels"] for c in classes.values()) * dispatch[0] + work["views"] * dispatch[1]) / 1e9
    ranks = int(value_of(overrides, "parallel.data", 1)) * int(value_of(overrides, "parallel.tensor", 1))
    tensor = ring_seconds(work["collectives"], "tensor", network["intra_gb_per_s"] * 1e9)
    link = "intra_gb_per_s" if ranks <= 8 else "inter_gb_per_s"
    data = ring_seconds(work["collectives"], "data", network[link] * 1e9)
    return max(max(device, host) + tensor, data)


def predict(program, points, point, efficiency):
    machine = points["machines"][point["gpu"]]
    with open(os.path.join(ROOT, "configs", "machines", machine + ".yaml"), encoding="utf-8") as f:
        text = f.read()
    dispatch = [int(re.search(rf"{field}: {{value: (\d+) us", text).group(1)) * 1000
                for field in ("op_dispatch", "view_dispatch")]
    overrides = ["training.iterations=2", *points["models"][point["model"]], *point["set"]]
    network = points["networks"][point["gpu"]]
    stages = int(value_of(overrides, "parallel.pipeline", 1))
    if stages == 1:
        return stage_seconds(program, overrides, machine, efficiency, network, dispatch)
    # The slowest stage, the last one with its logits, runs all micro-batches; the others fill the bubble.
    # Micro-batches are alike, so a few are generated and scaled up.
    count = int(value_of(overrides, "training.accumulation", 1))
    few = min(count, 4)
    times = []
    for stage in (0, stages - 1):
        rank = [*overrides, f"training.accumulation={few}", f"parallel.stage={stage}"]
        times.append(stage_seconds(program, rank, machine, efficiency, network, dispatch) / few)
    return count * max(times) + (stages - 1) * times[0] / point.get("interleave", 1)


def measured(point, points):
    if "seconds" in point:
        return point["seconds"]
    overrides = [*points["models"][point["model"]], *point["set"]]
    tokens = int(value_of(overrides, "training.batch", 8)) * int(value_of(overrides, "training.sequence", 1024))
    return tokens * int(value_of(overrides, "training.accumulation", 1)) / point["tokens_per_second"]


def fit(error_of, start=(0.70, 0.60, 0.80)):
    """Pattern search: small, without libraries, the same result everywhere."""
    best, value, step = start, error_of(start), 0.10
    while step > 0.004:
        improved = False
        for i in range(len(best)):
            for sign in (1, -1):
                trial = list(best)
                trial[i] = round(min(MOST, max(LEAST, trial[i] + sign * step)), 4)
                trial = tuple(trial)
                if trial != best and (e := error_of(trial)) < value - 1e-9:
                    best, value, improved = trial, e, True
        if not improved:
            step /= 2
    return best


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("swaplab", help="the program, e.g. build/release/swaplab")
    parser.add_argument("--json", action="store_true", help="JSON instead of a table")
    args = parser.parse_args()
    with open(os.path.join(ROOT, "configs", "workloads", "published", "points.yaml"), encoding="utf-8") as f:
        points = yaml.safe_load(f)
    report = {"gpus": {}, "points": []}
    with tempfile.TemporaryDirectory() as folder:
        program = Program(args.swaplab, folder)
        for gpu in points["machines"]:
            mine = [p for p in points["points"] if p["gpu"] == gpu]
            fitted = [p for p in mine if p.get("fit")]
            if len(fitted) > 3:
                sys.exit(f"error: {gpu}: fitted on {len(fitted)} points, at most three are allowed")

            def error_of(e):
                # A weak pull to the start decides where the points do not.
                pull = sum((x - s) ** 2 for x, s in zip(e, (0.70, 0.60, 0.80))) * 0.02
                return pull + sum(math.log(predict(program, points, p, e) / measured(p, points)) ** 2
                                  for p in fitted)
            efficiency = fit(error_of)
            report["gpus"][gpu] = dict(zip(NAMES, efficiency))
            for p in mine:
                seconds, truth = predict(program, points, p, efficiency), measured(p, points)
                report["points"].append({"id": p["id"], "gpu": gpu, "source": p["source"], "fitted": bool(p.get("fit")),
                                         "recalled": bool(p.get("recalled")), "measured_s": truth,
                                         "predicted_s": seconds, "error": seconds / truth - 1})
    for name, chosen in (("held_out", lambda p: not p["fitted"]),
                         ("held_out_verified", lambda p: not p["fitted"] and not p["recalled"])):
        errors = sorted(abs(p["error"]) for p in report["points"] if chosen(p))
        half = len(errors) // 2
        report["median_" + name] = errors[half] if len(errors) % 2 else (errors[half - 1] + errors[half]) / 2
    if args.json:
        print(json.dumps(report, indent=1))
        return
    for gpu, e in report["gpus"].items():
        print(f"{gpu}: " + ", ".join(f"{k} {100 * v:.1f} %" for k, v in e.items()))
    print(f"\n{'point':<27}  {'source':<12}  {'measured':>9}  {'predicted':>9}  {'error':>7}")
    for p in report["points"]:
        note = "fitted" if p["fitted"] else "recalled" if p["recalled"] else ""
        print(f"{p['id']:<27}  {p['source']:<12}  {p['measured_s']:>7.3f} s  {p['predicted_s']:>7.3f} s  "
              f"{100 * p['error']:>+6.1f}%  {note}")
    print(f"\nmedian error of held-out points: {100 * report['median_held_out']:.1f} % "
          f"(without recalled figures {100 * report['median_held_out_verified']:.1f} %)")


if __name__ == "__main__":
    main()
