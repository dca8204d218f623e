#!/usr/bin/env python3
"""Records eager PyTorch training iterations as a swaplab trace (JSON-lines schema v1)."""

import argparse
import importlib.util
import inspect
import os
import re
import sys

from recorder import RecorderError
from recorder.check import check_file
from recorder.schema import AtomicFile, VERSION

EPILOG = """\
examples:
  # a small GPT for real on this machine: four training iterations, measured operator times
  record_torch.py gpt --layers 4 --d-model 256 --heads 4 --seq-lens 128 --batch 4 -o gpt_small.jsonl.gz

  # GPT-2 medium without needing its memory: fake tensors, mixed precision, fused attention, dropout
  record_torch.py gpt --fake --layers 24 --d-model 1024 --heads 16 --vocab 50257 --seq-lens 1024 --batch 8 \\
      --dtype autocast --attention fused --dropout 0.1 --optimizer adamw-foreach -o gpt2_medium.jsonl.gz

  # iterations that differ: accumulation, validation after every 2nd, iteration 3 skips its optimizer step
  record_torch.py gpt --accum 2 --val-every 2 --skip-step 3 --seq-lens 64,128 --iterations 6 -o varied.jsonl.gz

  record_torch.py resnet50 --fake --batch 256 --optimizer sgd -o resnet50.jsonl.gz
  record_torch.py moe --tokens 4096 --moe-experts 8 --moe-topk 2 -o moe.jsonl.zst

  # also the allocator's own calls in order, and the scratch bytes that operators use inside
  record_torch.py resnet50 --batch 4 --image-size 64 --device cpu --exact-memory -o resnet_exact.jsonl.gz

  # your own program: user.py defines build() -> (model, optimizer, step)
  record_torch.py --script user.py --iterations 3 -o mine.jsonl.gz

user script:
  build() returns a module, its optimizer (or None) and step, which runs one training iteration: step() or
  step(loop). Forward, backward, recomputation, optimizer and zero_grad phases are found by themselves. With
  loop a script can say more: loop.it, loop.kind ("train"/"val", with --val-every), loop.phase("D"),
  loop.micro(0), loop.data(tensor, "input"), loop.step_skipped(). With --fake, build() runs on fake tensors.

times: a real CPU run stores the measured time of each operator (noisy, CPU only); a CUDA run is repeated
  under torch.profiler and kernel times are joined in order; a fake run has no times: only FLOP and bytes
  of each signature, from which a cost model computes them. Host gaps are never taken from a recording
  that slows the host down.
"""


def positive(text):
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a positive integer")
    return value


def non_negative(text):
    value = int(text)
    if value < 0:
        raise argparse.ArgumentTypeError(f"{text} is negative")
    return value


def probability(text):
    value = float(text)
    if not 0 <= value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not in [0, 1)")
    return value


def lengths(text):
    return [positive(part) for part in text.split(",")]


def make_parser():
    p = argparse.ArgumentParser(prog="record_torch.py", description=__doc__, epilog=EPILOG,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("model", nargs="?", choices=("gpt", "resnet50", "moe"), help="bundled model, or use --script")
    p.add_argument("--script", metavar="USER.PY", help="record build() of this file instead of a bundled model")
    p.add_argument("-o", "--output", required=True, metavar="FILE", help="FILE.jsonl, .jsonl.gz or .jsonl.zst")
    run = p.add_argument_group("recording")
    run.add_argument("--fake", action="store_true", help="fake tensors: no memory and no times, any model size")
    run.add_argument("--device", default="auto", help="auto (cuda if there is one), cpu or cuda:N")
    run.add_argument("--times", choices=("auto", "none"), default="auto", help="none leaves measured times out")
    run.add_argument("--exact-memory", action="store_true",
                     help="each call of the CPU allocator in order, and scratch bytes per operator (needs the C++ "
                     "headers of PyTorch and g++)")
    run.add_argument("--iterations", type=positive, default=3, metavar="N", help="training iterations (default 3)")
    run.add_argument("--val-every", type=non_negative, default=0, metavar="N",
                     help="a validation iteration after every N training iterations (default: none)")
    run.add_argument("--accum", type=positive, default=1, metavar="N", help="micro-batches per optimizer step")
    run.add_argument("--skip-step", type=non_negative, action="append", default=[], metavar="IT",
                     help="iteration IT (train and val counted together from 0) skips its optimizer step; repeatable")
    run.add_argument("--seed", type=int, default=0)
    run.add_argument("--allow-missing-grads", action="store_true", help="parameters may stay without gradient")
    m = p.add_argument_group("model")
    m.add_argument("--batch", type=positive, help="sequences or images per micro-batch (gpt 4, resnet50 8)")
    m.add_argument("--seq-lens", type=lengths, metavar="L[,L...]", help="sequence lengths, in turn per micro-batch "
                   "(default 128)")
    m.add_argument("--layers", type=positive, default=4)
    m.add_argument("--d-model", type=positive, default=256)
    m.add_argument("--heads", type=positive, default=4)
    m.add_argument("--vocab", type=positive, default=8192)
    m.add_argument("--image-size", type=positive, default=224, help="pixels (resnet50)")
    m.add_argument("--dtype", choices=("fp32", "bf16", "autocast"), default="fp32")
    m.add_argument("--optimizer", choices=("adamw", "adamw-foreach", "adamw-fused", "sgd"), default="adamw")
    m.add_argument("--attention", choices=("explicit", "fused"), default="explicit",
                   help="fused: one opaque operator that keeps no T x T matrix, as on a GPU")
    m.add_argument("--dropout", type=probability, default=0.0, metavar="P", help="with a boolean mask, as on a GPU")
    m.add_argument("--checkpoint", choices=("none", "reentrant"), default="none")
    m.add_argument("--moe-experts", type=positive, default=8)
    m.add_argument("--moe-topk", type=positive, default=2)
    m.add_argument("--tokens", type=positive, help="tokens per micro-batch (sets the batch from the longest length)")
    return p


def settle(o):
    """Checks combinations and fills defaults; the messages say what to change."""
    if bool(o.model) == bool(o.script):
        raise RecorderError("give either a bundled model (gpt, resnet50, moe) or --script USER.PY")
    if o.model == "moe" and o.fake:
        raise RecorderError("moe routes tokens by their values, which fake tensors lack; record it without --fake")
    if o.model == "resnet50":
        for flag, used in (("--seq-lens", o.seq_lens), ("--tokens", o.tokens), ("--attention", o.attention == "fused"),
                           ("--dropout", o.dropout), ("--checkpoint", o.checkpoint != "none")):
            if used:
                raise RecorderError(f"{flag} does not apply to resnet50")
    if o.fake and o.device.startswith("cuda"):
        raise RecorderError("--fake records on the CPU device; leave --device out")
    if o.exact_memory and (o.fake or o.device.startswith("cuda")):
        raise RecorderError("--exact-memory observes real memory of the CPU; it goes with --device cpu, not with "
                            + ("--fake" if o.fake else "CUDA"))
    o.seq_lens = o.seq_lens or [128]
    if o.tokens:
        if o.batch:
            raise RecorderError("--tokens and --batch both set the batch; give one")
        if o.tokens % max(o.seq_lens):
            raise RecorderError(f"--tokens {o.tokens} is not a multiple of the longest --seq-lens, {max(o.seq_lens)}")
        o.batch = o.tokens // max(o.seq_lens)
    o.batch = o.batch or {"gpt": 4, "moe": 32}.get(o.model, 8)


def load_script(path):
    if not os.path.isfile(path):
        raise RecorderError(f"--script {path}: no such file")
    spec = importlib.util.spec_from_file_location("recorded_program", path)
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, os.path.dirname(os.path.abspath(path)))
    spec.loader.exec_module(module)
    if not callable(getattr(module, "build", None)):
        raise RecorderError(f"--script {path}: it must define build() -> (model, optimizer, step)")
    return module.build


def builder(o):
    """Function without arguments that makes (model, optimizer, step(loop))."""
    from recorder import models
    if o.model:
        make = {"gpt": models.build_gpt, "moe": models.build_moe, "resnet50": models.build_resnet50}[o.model]
        return lambda: make(o)
    build = load_script(o.script)

    def from_script():
        made = build()
        if not isinstance(made, tuple) or len(made) != 3 or not callable(made[2]):
            raise RecorderError(f"--script {o.script}: build() must return (model, optimizer, step)")
        model, optimizer, step = made
        takes_loop = len(inspect.signature(step).parameters) > 0
        return model, optimizer, step if takes_loop else lambda loop: step()
    return from_script


def header(o, torch):
    cfg = {"accum": o.accum}
    if o.model:
        cfg.update(batch=o.batch, dtype=o.dtype, optimizer=o.optimizer)
        if o.model == "resnet50":
            cfg.update(image=o.image_size)
        else:
            cfg.update(seq=o.seq_lens if len(o.seq_lens) > 1 else o.seq_lens[0], layers=o.layers, d_model=o.d_model,
                       heads=o.heads, vocab=o.vocab, attention=o.attention, dropout=o.dropout, checkpoint=o.checkpoint)
        if o.model == "moe":
            cfg.update(experts=o.moe_experts, topk=o.moe_topk)
    # The script's file name without its folder: a header must not carry paths of a machine.
    model = o.model or os.path.splitext(os.path.basename(o.script))[0]
    return {"k": "hdr", "v": VERSION, "torch": torch.__version__, "src": "dispatch-fake" if o.fake else "dispatch-real",
            "dev": o.device, "model": model, "cfg": cfg, "seed": o.seed, "align": 1,
            "units": {"bytes": "B", "ns": "ns", "flop": "FLOP"}}


def record(o, torch):
    from contextlib import ExitStack

    from recorder import cuda_times, fake, session
    from recorder.dispatch import Recorder
    from recorder.exact_memory import ExactMemory

    on_gpu = o.device.startswith("cuda")
    build = builder(o)
    kinds = session.schedule(o.iterations, o.val_every)
    for it in o.skip_step:
        if it >= len(kinds) or kinds[it] != "train":
            raise RecorderError(f"--skip-step {it}: iteration {it} is "
                                + ("beyond the last" if it >= len(kinds) else "a validation"))
    if o.allow_missing_grads or o.model == "moe":
        pattern = re.compile("" if o.allow_missing_grads else r"\.experts\.")   # an idle expert gets none

        def may_lack(name):
            return pattern.search(name) is not None
    else:
        def may_lack(name):
            return False

    sink = AtomicFile(o.output)
    try:
        sink.write(header(o, torch))
        fallbacks = set()
        recorder = Recorder(sink, is_fake=o.fake, timed=o.times == "auto" and not on_gpu)
        recorder.keep_names = on_gpu
        with ExitStack() as stack:
            stack.enter_context(fake.quiet_record_function())
            torch.manual_seed(o.seed)
            if o.fake:
                stack.enter_context(fake.mode(fallbacks))
            if o.exact_memory:
                recorder.memory = stack.enter_context(ExactMemory())
            run = session.Session(recorder, *build(), may_lack)
            stack.enter_context(session.garbage_collection_off())
            stack.enter_context(run.hooks())
            with recorder:
                run.tag_model()
                for it, kind in enumerate(kinds):
                    print(f"iteration {it} ({kind}) ...", file=sys.stderr, flush=True)
                    run.iteration(it, kind)
            recorder.end()
        sink.close()
        if fallbacks:
            print("warning: no meta implementation, ran the real kernel once per shape: " + ", ".join(sorted(fallbacks)),
                  file=sys.stderr)
        if on_gpu and o.times == "auto":
            del run
            sink = cuda_times.add(sink, o, build, kinds, recorder.names)
        # The self-check reads the finished file back, so what is verified is what a reader will see.
        summary = check_file(sink.temp, o.output)
        if len(summary.iterations) != len(kinds):
            raise RecorderError(f"self-check: {len(summary.iterations)} iterations written, expected {len(kinds)}")
        if summary.ops == 0:
            raise RecorderError("self-check: no operator was recorded")
        session.growth_warning(summary.iterations)
        sink.commit()
    except BaseException:
        sink.discard()
        raise
    times = f"{summary.device_ns / 1e6:.1f} ms of operator time" if summary.timed_ops else "no times"
    print(f"{o.output}: {len(kinds)} iterations, {summary.ops} operators, {summary.storages} storages, "
          f"peak {summary.peak} B in phase {summary.peak_phase}, live at end {summary.live} B, "
          f"{summary.flop / 1e9:.1f} GFLOP, {times}", file=sys.stderr)


def main(argv=None):
    o = make_parser().parse_args(argv)
    try:
        settle(o)
        try:
            import torch
        except ImportError:
            raise RecorderError("this Python has no torch; on Debian: apt-get install python3-torch "
                                "libopenblas0-pthread, then /usr/bin/python3 scripts/record_torch.py ...") from None
        if o.device == "auto":
            o.device = "cuda:0" if torch.cuda.is_available() and not (o.fake or o.exact_memory) else "cpu"
        record(o, torch)
    except RecorderError as e:
        print(f"error: {e}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("error: interrupted, nothing written", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
