"""Tests of scripts/record_torch.py. Those that record need torch and skip with a reason without it.

Run:  /usr/bin/python3 tests/python/test_recorder.py
"""

import gzip
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SCRIPTS = os.path.join(ROOT, "scripts")
TRACES = os.path.join(ROOT, "configs", "traces")
SHARED = os.environ.get("SWAPLAB_SHARED", os.path.join(ROOT, "..", "shared"))
sys.path.insert(0, SCRIPTS)

from recorder import RecorderError, cuda_times  # noqa: E402
from recorder.check import check_file, check_lines  # noqa: E402

try:
    import torch  # noqa: F401
    from recorder.exact_memory import _headers
    NO_TORCH = None
except ImportError:
    NO_TORCH = "this Python has no torch (Debian: apt-get install python3-torch)"

HDR = {"k": "hdr", "v": 1}
SIG = {"k": "sig", "id": 0, "n": "aten.relu.default", "view": 0}
ALLOC = {"k": "alloc", "s": 0, "b": 64, "src": "ext", "dev": "cpu"}
OUT = {"k": "alloc", "s": 1, "b": 32, "src": "op", "dev": "cpu"}
OP = {"k": "op", "i": 0, "sig": 0, "ph": "F", "in": [0], "out": [1], "wr": []}
FREE = {"k": "free", "s": 0}
END = {"k": "end", "ops": 1, "storages": 2, "peak": 96, "live": 32}
GOOD = [HDR, SIG, ALLOC, OUT, OP, FREE, END]


def lines(*records):
    return [json.dumps(r) for r in records]


class Checker(unittest.TestCase):
    def test_accepts_the_smallest_trace(self):
        s = check_lines(lines(*GOOD), "t")
        self.assertEqual((s.ops, s.storages, s.peak, s.live, s.peak_phase), (1, 2, 96, 32, "F"))

    def rejected(self, records, pattern):
        with self.assertRaisesRegex(RecorderError, pattern):
            check_lines(lines(*records), "t")

    def test_rejects_damage_with_line_and_reason(self):
        self.rejected(GOOD[:-1], "no 'end' line")
        self.rejected([HDR, SIG, ALLOC, FREE, OUT, OP, END], r"t:6: .*reads storage 0, which was freed before")
        self.rejected([HDR, SIG, OUT, OP, END], r"t:4: .*never allocated")
        self.rejected([HDR, SIG, ALLOC, ALLOC], r"t:4: storage id 0 is allocated twice")
        self.rejected([HDR, SIG, ALLOC, OUT, OP, FREE, FREE, END], r"t:7: 'free' of storage 0")
        self.rejected([HDR, SIG, ALLOC, OUT, {**OP, "i": 1}], r"operator index 1, expected 0")
        self.rejected([HDR, SIG, ALLOC, OUT, {**OP, "wr": [1]}], r"not among its inputs")
        self.rejected([HDR, SIG, ALLOC, OUT, {**OP, "out": []}], r"does not return it")
        self.rejected([HDR, SIG, {**ALLOC, "b": -1}], r"'b' as an integer >= 0")
        self.rejected([{**HDR, "v": 2}], r"schema version 2, expected 1")
        self.rejected(GOOD[:-1] + [{**END, "peak": 95}], r"peak = 95, the replay gives 96")
        self.rejected([HDR, {"k": "mark", "m": "iter_end", "it": 0}], r"iteration 0 ends")

    def test_sizes_beyond_2_to_53_stay_exact(self):
        big = 2**53 + 1
        s = check_lines(lines(HDR, SIG, {**ALLOC, "b": big}, OUT, OP, {**END, "peak": big + 32, "live": big + 32}), "t")
        self.assertEqual(s.peak, big + 32)

    def test_truncated_gzip_is_an_error(self):
        with open(os.path.join(TRACES, "gpt_small.jsonl.gz"), "rb") as f:
            half = f.read()[:20000]
        with tempfile.NamedTemporaryFile(suffix=".jsonl.gz") as f:
            f.write(half)
            f.flush()
            self.assertRaises(RecorderError, check_file, f.name)


class Bundled(unittest.TestCase):
    def table(self):
        with open(os.path.join(TRACES, "README.md"), encoding="utf-8") as f:
            for row in f:
                cells = [c.strip() for c in row.strip().strip("|").split("|")]
                if len(cells) == 7 and cells[0].endswith((".gz", ".zst")):
                    yield cells[0], [int(c) for c in cells[3:]]

    def test_every_file_replays_to_the_table(self):
        rows = dict(self.table())
        files = sorted(f for f in os.listdir(TRACES) if f.endswith((".gz", ".zst")))
        self.assertEqual(files, sorted(rows))
        for name in files:
            with self.subTest(name):
                path = os.path.join(TRACES, name)
                self.assertLessEqual(os.path.getsize(path), 300_000)
                s = check_file(path)
                self.assertEqual([s.ops, s.storages, s.peak, s.live], rows[name])
                self.assertEqual(s.timed_ops, 0 if s.header["src"] == "dispatch-fake" else s.ops)

    def test_what_the_files_are_for(self):
        s = {n: check_file(os.path.join(TRACES, n)) for n, _ in self.table()}
        varied = s["gpt_varied.jsonl.gz"].iterations
        self.assertEqual("".join("s" if i["skipped"] else i["kind"][0] for i in varied), "ttvstvttv")
        self.assertNotIn("B", varied[2]["phases"])
        self.assertGreater(s["gpt2_medium.jsonl.gz"].peak, 10 * 2**30)
        moe = s["moe.jsonl.gz"]
        self.assertEqual(len({i["ops"] for i in moe.iterations}), len(moe.iterations))
        self.assertGreater(moe.peak_bytes_by_class["other"], moe.peak / 2)
        # 3 x 2 x 4.1 GFLOP per image, from the architecture's published count of 4.1 G multiply-adds.
        flop = s["resnet50_b256.jsonl.gz"].iterations[-1]["flop"]
        self.assertAlmostEqual(flop / (6 * 4.1e9 * 256), 1.0, delta=0.02)

    def test_no_absolute_paths(self):
        for name, _ in self.table():
            with gzip.open(os.path.join(TRACES, name), "rt", encoding="utf-8") as f:
                self.assertIsNone(re.search(r'"[^"]*/[a-z]+[/"]', f.read()), name)

    def test_agrees_with_an_independent_recorder(self):
        folder = os.path.join(SHARED, "recorded")
        if not os.path.isdir(folder):
            self.skipTest(f"shared recordings are absent ({folder})")
        theirs = check_file(os.path.join(folder, "resnet50_fake_b256.jsonl.gz"))
        ours = check_file(os.path.join(TRACES, "resnet50_b256.jsonl.gz"))
        self.assertEqual(theirs.ops, 3025)
        self.assertLess(abs(ours.peak - theirs.peak), 64 * 1024)
        self.assertEqual(ours.live, theirs.live)


class CudaTimes(unittest.TestCase):
    @staticmethod
    def op(name, ts, dur, ext):
        return {"ph": "X", "cat": "cpu_op", "name": name, "ts": ts, "dur": dur, "args": {"External id": ext}}

    @staticmethod
    def kernel(dur, ext, stream=7):
        return {"ph": "X", "cat": "kernel", "name": "k", "ts": 0, "dur": dur,
                "args": {"External id": ext, "stream": stream}}

    def test_kernels_of_nested_calls_belong_to_the_recorded_operator(self):
        events = [self.op("aten::linear", 0, 10, 1), self.op("aten::addmm", 2, 6, 2), self.kernel(5.5, 2),
                  self.op("aten::to", 20, 9, 3), self.op("aten::_to_copy", 21, 7, 4), self.op("aten::copy_", 22, 2, 5),
                  self.kernel(3, 5), self.op("aten::add_", 40, 1, 6), self.kernel(1, 6, 9)]
        got = cuda_times.join([("aten.t.default", True), ("aten.addmm.default", False), ("aten._to_copy.default", False),
                               ("aten.add.Tensor", False)], cuda_times.read_chrome_trace(events))
        self.assertEqual(got, [{"ns": 0}, {"ns": 5500, "hns": 6000, "gap": 0}, {"ns": 3000, "hns": 7000, "gap": 13000},
                               {"ns": 1000, "hns": 1000, "gap": 12000, "st": 1}])

    def test_other_program_is_an_error(self):
        with self.assertRaisesRegex(RecorderError, "operator 0 .*does not follow"):
            cuda_times.join([("aten.mm.default", False)], cuda_times.read_chrome_trace([self.op("aten::add", 0, 1, 1)]))


@unittest.skipIf(NO_TORCH, NO_TORCH)
class Recording(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def record(self, *arguments, name="t.jsonl", status=0):
        path = os.path.join(self.folder.name, name)
        done = subprocess.run([sys.executable, os.path.join(SCRIPTS, "record_torch.py"), *arguments, "-o", path],
                              capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, status, done.stderr)
        self.message = done.stderr
        return path

    TINY = ("gpt", "--layers", "1", "--d-model", "32", "--heads", "2", "--vocab", "64", "--seq-lens", "16", "--batch", "2",
            "--iterations", "2")

    def test_fake_recording_is_reproducible_and_equals_the_real_one(self):
        a = self.record(*self.TINY, "--fake", name="a.jsonl.gz")
        b = self.record(*self.TINY, "--fake", name="b.jsonl.gz")
        with open(a, "rb") as f, open(b, "rb") as g:
            self.assertEqual(f.read(), g.read())
        fake, real = check_file(a), check_file(self.record(*self.TINY))
        # Not the storages: the fake mode copies each scalar that torch.tensor() makes (AdamW's step counts).
        self.assertEqual((fake.ops, fake.peak, fake.live), (real.ops, real.peak, real.live))
        self.assertEqual((fake.timed_ops, real.timed_ops), (0, real.ops))

    def test_iterations_phases_and_steady_state(self):
        s = check_file(self.record(*self.TINY, "--iterations", "4", "--accum", "2", "--val-every", "2", "--skip-step", "3",
                                   "--checkpoint", "reentrant", "--dropout", "0.1", "--attention", "fused"))
        self.assertEqual([i["kind"] for i in s.iterations], ["train", "train", "val", "train", "train", "val"])
        self.assertEqual([i["skipped"] for i in s.iterations], [False, False, False, True, False, False])
        self.assertTrue({"F", "B", "R", "O", "D"} <= set(s.iterations[1]["phases"]))
        self.assertEqual(set(s.iterations[2]["phases"]), {"D", "E"})
        self.assertLess(s.iterations[3]["phases"]["O"], s.iterations[4]["phases"]["O"])
        self.assertEqual(s.iterations[1]["live"], s.iterations[4]["live"])

    def test_exact_memory_agrees_with_the_dispatched_storages(self):
        self.record("resnet50", "--fake", "--exact-memory", status=2)
        self.assertIn("observes real memory", self.message)
        try:
            _headers()
        except RecorderError as e:
            self.skipTest(str(e))
        path = self.record(*self.TINY, "--exact-memory", "--times", "none")
        with open(path, encoding="utf-8") as f:
            records = [json.loads(line) for line in f]
        self.assertTrue(any(r["k"] == "sig" and r["scr"] > 0 for r in records))
        exact = storages = 0
        live, sizes, apart = {}, {}, []
        for r in records:
            if r["k"] == "mem":
                exact += r["b"]
                if r["b"] > 0:
                    self.assertNotIn(r["p"], live)
                    live[r["p"]] = r["b"]
                else:
                    # What lives from before the recording is freed without an allocation that was seen.
                    self.assertEqual(live.pop(r["p"], -r["b"]), -r["b"])
            elif r["k"] == "alloc":
                sizes[r["s"]] = r["b"]
                storages += r["b"] * (r["src"] == "op")
            elif r["k"] == "free":
                storages -= sizes[r["s"]]
            elif r["k"] == "op":
                apart.append(exact - storages)
        # External storages born between operators count on the exact side only; else both tell the same story.
        second = apart[len(apart) // 2:]
        self.assertLessEqual(max(second) - min(second), 4096)

    def test_user_script(self):
        script = os.path.join(self.folder.name, "user.py")
        with open(script, "w", encoding="utf-8") as f:
            f.write("import torch\ndef build():\n    m = torch.nn.Linear(8, 4, bias=False)\n"
                    "    o = torch.optim.SGD(m.parameters(), lr=0.1)\n    def step():\n        o.zero_grad()\n"
                    "        m(torch.ones(2, 8)).sum().backward()\n        o.step()\n    return m, o, step\n")
        path = self.record("--script", script)
        s = check_file(path)
        self.assertEqual(s.header["model"], "user")
        self.assertTrue({"F", "B", "O"} <= set(s.iterations[1]["phases"]))
        with open(path, encoding="utf-8") as f:
            sigs = [r for r in map(json.loads, f) if r["k"] == "sig" and r["n"] == "aten.mm.default"]
        self.assertEqual(sigs[0]["flop"], 2 * 2 * 8 * 4)
        self.assertEqual((sigs[0]["rb"], sigs[0]["wb"]), (4 * (2 * 8 + 8 * 4), 4 * 2 * 4))

    def test_errors_are_one_line_and_leave_no_file(self):
        bad = os.path.join(self.folder.name, "bad.py")
        with open(bad, "w", encoding="utf-8") as f:
            f.write("import torch\ndef build():\n    m = torch.nn.Linear(2, 2)\n    return m, None, lambda: m(torch.ones(1, 2))\n")
        for arguments, text in ((("moe", "--fake"), "without --fake"), ((), "either a bundled model"),
                                (("--script", bad), "no backward operator"),
                                ((*self.TINY, "--skip-step", "9"), "beyond the last"),
                                ((*self.TINY, "--heads", "5"), "not a multiple"),
                                (("resnet50", "--dropout", "0.1"), "does not apply")):
            with self.subTest(text):
                self.record(*arguments, status=2)
                self.assertIn(text, [line for line in self.message.splitlines() if line.startswith("error: ")][0])
                self.assertEqual([n for n in os.listdir(self.folder.name) if "jsonl" in n], [])
        self.record(*self.TINY, name="t.txt", status=2)
        self.assertIn("must end in", self.message)
        self.record(*self.TINY, name="absent/t.jsonl", status=2)
        self.assertIn("cannot write there", self.message)


if __name__ == "__main__":
    unittest.main(verbosity=2)
