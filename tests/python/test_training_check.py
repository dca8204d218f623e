"""The parts of scripts/gpu_training_check.py that need no GPU: decisions read from a schedule, and hooks that
carry them out, on Debian's torch for CPUs. Gradients must not change by a bit."""

import os
import subprocess
import sys
import tempfile
import unittest

SWAPLAB, SOURCE = sys.argv[1:3]
SCRIPTS = os.path.join(SOURCE, "scripts")
sys.path.insert(0, SCRIPTS)
try:
    import torch
except ImportError:
    print("skipped: this Python has no torch (on Debian: apt-get install python3-torch)")
    sys.exit(77)
import gpu_training_check as check  # noqa: E402

check.import_recorder()
import record_torch  # noqa: E402
from recorder.session import Loop, NullRecorder  # noqa: E402

MODEL = ["gpt", "--device", "cpu", "--layers", "2", "--d-model", "64", "--heads", "2", "--seq-lens", "32", "--batch", "2",
         "--vocab", "128", "--times", "none"]


def build(trace):
    options = record_torch.make_parser().parse_args([*MODEL, "-o", trace])
    record_torch.settle(options)
    torch.manual_seed(0)
    return record_torch.builder(options)()


def train(model_step, steps, offloader=None):
    model, _, step = model_step
    loop = Loop(NullRecorder())
    for _ in range(steps):
        if offloader is None:
            step(loop)
            continue
        offloader.start_step()
        with offloader.hooks():
            step(loop)
        moved = (offloader.bytes_out, offloader.bytes_in)
        offloader.end_step()
    parameters = [p.detach().clone() for p in model.parameters()]
    return (parameters, moved) if offloader else parameters


class Hooks(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.trace = os.path.join(cls.folder.name, "t.jsonl.gz")
        cls.schedule = os.path.join(cls.folder.name, "s.jsonl")
        subprocess.run([sys.executable, os.path.join(SCRIPTS, "record_torch.py"), *MODEL, "--iterations", "4", "-o", cls.trace],
                       check=True, capture_output=True)
        subprocess.run([SWAPLAB, "run", "--trace", cls.trace, "--policy",
                        "offload-activations:min_bytes=1KiB,fallback=lru", "--budget", "0.7x", "--allocator", "ideal", "--machine",
                        "a100-40g-pcie4", "--schedule", cls.schedule], check=True, capture_output=True)
        cls.saved = check.decisions(cls.trace, cls.schedule, iteration=2)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def test_decisions_are_the_schedules(self):
        offloaded = [s for s in self.saved if s.offload]
        self.assertGreater(len(offloaded), 5)
        outs, ins = set(), set()
        for entry in check.read_lines(self.schedule):
            if isinstance(entry, list):
                (outs if entry[0] == "out" else ins if entry[0] == "in" else set()).add(entry[1])
        self.assertEqual({s.storage for s in offloaded}, outs & ins & {s.storage for s in self.saved})
        self.assertTrue(all(-1 <= s.load_after < len(self.saved) for s in offloaded))

    def test_training_is_the_same_bit_by_bit_and_every_decision_is_carried_out(self):
        plain = train(build(self.trace), 3)
        model_step = build(self.trace)
        offloader = check.Offloader(torch, self.saved, check.kept_storages(model_step[0]), "cpu")
        offloaded, (out, back) = train(model_step, 3, offloader)
        for a, b in zip(plain, offloaded):
            self.assertTrue(torch.equal(a, b))
        wanted = sum(s.bytes for s in self.saved if s.offload)
        self.assertEqual(out, wanted)
        self.assertEqual(back, wanted)
        # Scalars and inputs from outside the step are not in the list of what the step made.
        self.assertLessEqual(offloader.unmatched, 3)

    def test_without_decisions_nothing_moves(self):
        model_step = build(self.trace)
        offloader = check.Offloader(torch, [], check.kept_storages(model_step[0]), "cpu")
        parameters, moved = train(model_step, 1, offloader)
        self.assertEqual(moved, (0, 0))
        for a, b in zip(train(build(self.trace), 1), parameters):
            self.assertTrue(torch.equal(a, b))

    def test_a_wrong_byte_would_change_the_result(self):
        model_step = build(self.trace)
        offloader = check.Offloader(torch, self.saved, check.kept_storages(model_step[0]), "cpu")
        load = offloader.load

        def spoil(index):
            block = offloader.blocks.get(index)
            if block is not None and block.device is None:
                block.host.zero_()
            load(index)
        offloader.load = spoil
        spoiled, _ = train(model_step, 2, offloader)
        self.assertFalse(all(torch.equal(a, b) for a, b in zip(train(build(self.trace), 2), spoiled)))

    def test_without_a_gpu_it_skips_with_a_reason(self):
        if torch.cuda.is_available():
            self.skipTest("there is a GPU")
        done = subprocess.run([sys.executable, os.path.join(SCRIPTS, "gpu_training_check.py")], capture_output=True, text=True)
        self.assertEqual(done.returncode, 77)
        self.assertIn("finds no CUDA GPU", done.stdout)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
