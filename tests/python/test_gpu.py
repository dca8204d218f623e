"""swaplab-gpu as users run it, on the host device: results that the sweep's readers take, interrupts,
exit codes, and a probe whose file can be read back."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest

GPU, SWAPLAB, SOURCE = sys.argv[1:4]
TRACE = os.path.join(SOURCE, "configs/traces/gpt_small.jsonl.gz")
QUICK = ["--device", "host", "--machine", "a100-40g-pcie4", "--bytes-scale", "1/64", "--fast-copies"]


def run(*arguments, program=GPU):
    return subprocess.run([program, *arguments], capture_output=True, text=True, timeout=240)


class Replay(unittest.TestCase):
    def test_results_are_a_sweeps_results_with_measured_times(self):
        with tempfile.TemporaryDirectory() as folder:
            out = os.path.join(folder, "measured.jsonl")
            done = run("replay", "--trace", TRACE, "--policy", "none,lru,foresight", "--budget", "0.7x",
                       "--repeats", "2", "--iterations", "5", "--output", out, *QUICK)
            self.assertEqual(done.returncode, 0, done.stderr)
            with open(out) as file:
                lines = [json.loads(line) for line in file]
            self.assertEqual([line["factors"]["policy"] for line in lines], ["none", "lru", "foresight"])
            self.assertEqual([line["status"] for line in lines], ["infeasible", "ok", "ok"])
            for line in lines:
                self.assertTrue(line["measured"])
                self.assertEqual(line["decisions_differ"], "")
                self.assertEqual(line["integrity"]["wrong_words"], 0)
                self.assertEqual(len(line["iterations_ns"]), 2)
            for line in lines[1:]:
                metrics = line["metrics"]
                first, end = line["steady_iterations"]
                sums = sorted(sum(times[first:end]) for times in line["iterations_ns"])
                self.assertEqual(metrics["steady_total_ns"], sums[0])
                self.assertGreater(line["integrity"]["operands"], 10000)
                self.assertGreater(metrics["swapped_in_bytes"], 0)
                # Per-iteration figures are rounded down, so the stalls may lack a few ns.
                parts = metrics["compute_busy_ns"] + sum(v for k, v in metrics.items() if k.startswith("stall_"))
                self.assertLess(abs(parts - metrics["iter_time_ns"]), 10)
            compared = run("compare", out, "--baseline", "lru", "--candidate", "foresight", program=SWAPLAB)
            self.assertIn(compared.returncode, (0, 1), compared.stderr)
            self.assertIn("foresight", compared.stdout)

    def test_interrupt_keeps_what_was_finished(self):
        with tempfile.TemporaryDirectory() as folder:
            out = os.path.join(folder, "measured.jsonl")
            process = subprocess.Popen(
                [GPU, "replay", "--trace", TRACE, "--policy", "lru", "--budget", "0.7x", "--repeats", "1000",
                 "--output", out, *QUICK], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            for _ in range(2400):
                if os.path.exists(out):
                    break
                time.sleep(0.05)
            process.send_signal(signal.SIGINT)
            process.send_signal(signal.SIGINT)  # as `timeout` does
            _, errors = process.communicate(timeout=60)
            self.assertEqual(process.returncode, 130, errors)
            self.assertIn("interrupted", errors)
            with open(out) as file:
                lines = [json.loads(line) for line in file]
            self.assertEqual(len(lines), 1)
            self.assertGreaterEqual(len(lines[0]["iterations_ns"]), 1)

    def test_lines_say_whether_copies_were_stretched(self):
        # validate simulates links as the profile has them, or as real bytes move, by this.
        with tempfile.TemporaryDirectory() as folder:
            out = os.path.join(folder, "measured.jsonl")
            for extra, stretched in (([], True), (["--fast-copies"], False)):
                done = run("replay", "--trace", TRACE, "--policy", "lru", "--budget", "0.8x", "--device", "host",
                           "--machine", "a100-40g-pcie4", "--bytes-scale", "1/64", "--iterations", "2",
                           "--repeats", "1", "-o", out, *extra)
                self.assertEqual(done.returncode, 0, done.stderr)
                with open(out) as file:
                    self.assertIs(json.loads(file.readline())["copies_stretched"], stretched)

    def test_wrong_usage(self):
        for arguments, words in [
            (["--policy", "lru"], "needs --trace"),
            (["--trace", TRACE], "needs --policy"),
            (["--trace", TRACE, "--policy", "lru", "--bytes-scale", "1/3"], "--bytes-scale"),
            (["--trace", TRACE, "--policy", "lru", "--kernels", "matmul=compte"], "did you mean 'compute'"),
            (["--trace", TRACE, "--policy", "lru", "--kernels", "matmull=spin"], "did you mean 'matmul'"),
            (["--trace", TRACE, "--policy", "lru", "--device", "hots"], "did you mean 'host'"),
            (["--trace", TRACE, "--policy", "lru", "--device", "host", "--memory", "vmm"], "reservation"),
            (["--trace", TRACE, "--policy", "lru", "--warmup", "6"], "--warmup"),
            (["--trace", TRACE, "--policy", "lru", "--time-scale", "0"], "--time-scale"),
        ]:
            done = run("replay", *arguments)
            self.assertEqual(done.returncode, 2, (arguments, done.stderr))
            self.assertIn(words, done.stderr)
            self.assertEqual(done.stderr.count("error:"), 1)
        self.assertEqual(run("replay", "--trace", "/nonexistent", "--policy", "lru", "--device", "host").returncode, 3)
        self.assertEqual(run("repaly").returncode, 2)
        for command in ("replay", "probe"):
            self.assertIn("examples:", run(command, "--help").stdout)


class Probe(unittest.TestCase):
    def test_host(self):
        with tempfile.TemporaryDirectory() as folder:
            out = os.path.join(folder, "measurements.json")
            done = run("probe", "--device", "host", "--only", "copy_", "--limit-seconds", "4", "-o", out)
            self.assertEqual(done.returncode, 0, done.stderr)
            with open(out) as file:
                document = json.load(file)
            self.assertEqual(document["format"], "swaplab-measurements")
            self.assertEqual(document["device"]["kind"], "host")
            pinned = [s for s in document["series"] if s["quantity"] == "copy_h2d_pinned"]
            self.assertGreaterEqual(len(pinned), 5)
            for series in document["series"]:
                self.assertGreaterEqual(len(series["samples_ns"]), 2)
                self.assertTrue(all(sample > 0 for sample in series["samples_ns"]))
            same = run("probe", "--device", "host", "--only", "kernel_empty", "--json")
            self.assertEqual(json.loads(same.stdout)["series"][0]["quantity"], "kernel_empty")
        self.assertEqual(run("probe", "--device", "host", "--only", "nonsense").returncode, 2)

    def test_without_a_gpu_it_says_so(self):
        done = run("probe", "--device", "cuda:63")
        self.assertEqual(done.returncode, 7, done.stderr)
        self.assertTrue(done.stderr.startswith("error: no device: "))
        self.assertEqual(len(done.stderr.splitlines()), 1)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
