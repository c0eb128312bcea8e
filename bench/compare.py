#!/usr/bin/env python3
"""Draw the same picture size with several programs in turn and compare their stages.

    python3 bench/compare.py --model FOLDER --sd-cli PATH --python PATH [--rounds 3]

FOLDER is made by bench/klein_slice.py. Every run is a new process; in each round every program
runs once, so that a machine that slows down slows all of them. All files are read once before, so
that no program waits for the disk. Prints a table of medians and writes it to --output.

What the columns count; load and total by the clock of this script, text, step and decode as the
program reports them (for torch: around the calls of the pipeline):
  load     start of the process to the start of text encoding
  text     encoding the prompt, tokenising included; 512 tokens with the padding
  step     the loop of denoising steps, divided by their number
  decode   latent to picture
  total    the whole process
  peak     the largest resident set the kernel saw (ru_maxrss); mapped weights count
  own      the largest anonymous memory while decoding: what cannot be dropped and read again
"""
import argparse
import datetime
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
PROMPT = "a red apple"
COLUMNS = ("step", "decode", "text", "load", "total", "peak", "own")
HEADINGS = ("s/step", "decode s", "text s", "load s", "total s", "peak MB", "own MB in decode")


class Failure(Exception):
    pass


class Run:
    """One finished process: its lines and memory over time, and what the kernel counted."""

    def __init__(self, command, environment, limit):
        self.lines = []  # (seconds since start, text)
        self.anonymous = []  # (seconds since start, bytes)
        self.start = time.perf_counter()
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, **environment},
        )
        reader = threading.Thread(target=self._read, args=(process.stdout,))
        reader.start()
        while True:
            pid, status, usage = os.wait4(process.pid, os.WNOHANG)
            self.wall = time.perf_counter() - self.start
            if pid:
                break
            if self.wall > limit:
                process.kill()
                os.wait4(process.pid, 0)
                process.returncode = -9
                raise Failure(f"took more than {limit:.0f} s, last said {self._last_line()}")
            self._sample(process.pid)
            time.sleep(0.02)
        process.returncode = os.waitstatus_to_exitcode(status)
        reader.join()
        self.peak = usage.ru_maxrss * 1024
        if process.returncode != 0:
            raise Failure(f"exit status {process.returncode}, last said {self._last_line()}")

    def _read(self, pipe):
        rest = b""
        while chunk := os.read(pipe.fileno(), 1 << 16):
            now = time.perf_counter() - self.start
            *complete, rest = re.split(rb"[\r\n]", rest + chunk)
            self.lines += [(now, line.decode(errors="replace")) for line in complete if line]

    def _last_line(self):
        return f"`{self.lines[-1][1][:80]}`" if self.lines else "nothing"

    def _sample(self, pid):
        try:
            status = pathlib.Path(f"/proc/{pid}/status").read_text()
        except OSError:
            return
        if match := re.search(r"^RssAnon:\s+(\d+) kB", status, re.M):
            self.anonymous.append((self.wall, int(match[1]) * 1024))

    def find(self, pattern, what):
        """(time, match) of the first line that matches."""
        for when, line in self.lines:
            if match := re.search(pattern, line):
                return when, match
        raise Failure(f"its output does not tell {what}")

    def result(self, load, text, step, decode, decode_end, **notes):
        """Seconds of the stages; decode_end is when decoding ended, since the start."""
        inside = [b for t, b in self.anonymous if decode_end - decode <= t <= decode_end]
        return {
            "load": load,
            "text": text,
            "step": step,
            "decode": decode,
            "total": self.wall,
            "peak": self.peak / 1e6,
            "own": max(inside, default=0) / 1e6,
            "notes": notes,
        }


class Ours:
    name = "mere.run"

    def __init__(self, options, folder):
        self.options = options
        self.output = folder / "ours.png"

    def missing(self):
        return None if self.options.program.exists() else f"{self.options.program} is not there"

    def run(self):
        o = self.options
        command = [o.program, "image", "generate", "--model", o.model, "--prompt", PROMPT]
        command += ["--width", o.size, "--height", o.size, "--steps", o.steps, "--seed", "1"]
        command += ["--json", "--progress-json", "--output", self.output]
        environment = {"MERERUN_THREADS": str(o.threads)}
        if o.isa:
            environment["MERERUN_CPU_ISA"] = o.isa
        run = Run(o.prefix + [str(part) for part in command], environment, o.limit)
        document = json.loads(
            "\n".join(line for _, line in run.lines if not line.startswith('{"event"'))
        )
        seconds = document["timings_seconds"]
        text_start, _ = run.find('"encodingText","step":0', "when text encoding started")
        decoded, _ = run.find('"decoding","step":1', "when decoding ended")
        return run.result(
            text_start,
            seconds["text_encoder"],
            seconds["denoise"] / o.steps,
            seconds["decode"],
            decoded,
            version=document["version"],
        )


class StableDiffusionCpp:
    def __init__(self, options, folder, kind):
        self.options, self.kind = options, kind
        self.name = f"stable-diffusion.cpp {kind}"
        self.output = folder / f"sd-{kind}.png"

    def missing(self):
        if not self.options.sd_cli:
            return "--sd-cli was not given"
        if not (self.options.model / "peers/transformer-bf16.safetensors").exists():
            return "the model was made without the files for the peers"
        return None

    def weights(self, name, source):
        """The file with quantised weights, made by the program itself when it is not there yet."""
        if self.kind == "bf16":
            return source
        path = self.options.model / f"peers/{name}-{self.kind}.gguf"
        if not path.exists():
            part = path.with_name("part.gguf")
            command = [self.options.sd_cli, "-M", "convert", "-m", source, "-o", part]
            done = subprocess.run([*command, "--type", self.kind], capture_output=True)
            if done.returncode != 0:
                raise Failure(f"its conversion to {self.kind} failed")
            part.rename(path)
        return path

    def run(self):
        o = self.options
        transformer = self.weights("transformer", o.model / "peers/transformer-bf16.safetensors")
        text_encoder = self.weights("llm", o.model / "text_encoder/model.safetensors")
        command = [o.sd_cli, "--diffusion-model", transformer, "--llm", text_encoder]
        command += ["--vae", o.model / "vae/diffusion_pytorch_model.safetensors"]
        command += ["-p", PROMPT, "--cfg-scale", "1", "--sampling-method", "euler", "-v"]
        command += ["-W", o.size, "-H", o.size, "--steps", o.steps, "--seed", "1"]
        command += ["-t", o.threads, "--diffusion-fa", "-o", self.output]
        environment = {"OMP_NUM_THREADS": str(o.threads)}
        run = Run(o.prefix + [str(part) for part in command], environment, o.limit)
        text_end, text = run.find(
            r"get_learned_condition completed, taking ([\d.]+)s", "the seconds of text encoding"
        )
        _, sampling = run.find(r"sampling completed, taking ([\d.]+)s", "the seconds of the steps")
        decoded, decode = run.find(
            r"decode_first_stage completed, taking ([\d.]+)s", "the seconds of decoding"
        )
        buffers = [
            re.search(r"(\w+) compute buffer size: *([\d.]+) MB", line) for _, line in run.lines
        ]
        return run.result(
            text_end - float(text[1]),
            float(text[1]),
            float(sampling[1]) / o.steps,
            float(decode[1]),
            decoded,
            buffers={match[1]: float(match[2]) for match in buffers if match},
        )


class Torch:
    def __init__(self, options, folder, dtype):
        self.options, self.dtype = options, dtype
        self.name = f"torch {dtype}"
        self.output = folder / f"torch-{dtype}.png"

    def missing(self):
        return None if self.options.python else "--python was not given"

    def run(self):
        o = self.options
        command = [o.python, ROOT / "bench/torch_klein.py", o.model, "--dtype", self.dtype]
        command += ["--threads", o.threads, "--size", o.size, "--steps", o.steps]
        command += ["--prompt", PROMPT, "--output", self.output]
        environment = {"OMP_NUM_THREADS": str(o.threads), "HF_HUB_OFFLINE": "1"}
        if o.isa == "avx2":
            environment |= {
                "ATEN_CPU_CAPABILITY": "avx2",
                "ONEDNN_MAX_CPU_ISA": "AVX2",
                "MKL_ENABLE_INSTRUCTIONS": "AVX2",
            }
        run = Run(o.prefix + [str(part) for part in command], environment, o.limit)
        at, packages = {}, {}  # stage -> its times; package -> its version
        for _, line in run.lines:
            if line.startswith('{"stage"'):
                event = json.loads(line)
                at.setdefault(event["stage"], []).append(event["at"] - run.start)
                packages = event.get("versions", packages)
        try:
            return run.result(
                at["text"][0],
                at["text done"][0] - at["text"][0],
                (at["step done"][-1] - at["step"][0]) / o.steps,
                at["decode done"][0] - at["decode"][0],
                at["decode done"][0],
                versions=packages,
            )
        except KeyError as missing:
            raise Failure(f"its output does not tell {missing}") from None


def programs(options, folder):
    known = {"ours": Ours(options, folder)}
    for kind in ("bf16", "q8_0", "q4_0"):
        known[f"sd-{kind}"] = StableDiffusionCpp(options, folder, kind)
    known["torch-f32"] = Torch(options, folder, "float32")
    known["torch-bf16"] = Torch(options, folder, "bfloat16")
    if unknown := set(options.only) - set(known):
        sys.exit(f"error: --only {','.join(sorted(unknown))}: known are {','.join(known)}")
    return {name: p for name, p in known.items() if not options.only or name in options.only}


def read_once(folder):
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            with open(path, "rb", buffering=0) as file:
                while file.read(1 << 24):
                    pass


def machine():
    """The processor by what matters for speed; no names."""
    text = pathlib.Path("/proc/cpuinfo").read_text()
    flags = set((re.search(r"^flags\s*:(.*)$", text, re.M) or ["", ""])[1].split())
    wanted = "avx2 fma f16c avx_vnni avx512f avx512_vnni avx512_bf16 avx512_fp16 amx_tile amx_bf16"
    have = [flag for flag in wanted.split() if flag in flags]
    lack = [flag for flag in ("avx512f", "avx512_bf16", "amx_bf16") if flag not in flags]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
    without = f" (without {', '.join(lack)})" if lack else ""
    count = len(os.sched_getaffinity(0))
    return f"{count} processors with {', '.join(have)}{without}, {memory:.0f} GB"


def cell(value, column, reference):
    text = f"{value:.0f}" if column in ("peak", "own") else f"{value:.2f}"
    return f"{text} ({value / reference:.2f}x)" if reference else text


def table(results, absent):
    """Markdown: medians, and behind each how many times ours it is."""
    rows = ["| program | " + " | ".join(HEADINGS) + " |", "| --- |" + " --- |" * len(COLUMNS)]
    median = {
        name: {c: statistics.median(run[c] for run in runs) for c in COLUMNS}
        for name, (_, runs) in results.items()
        if runs
    }
    ours = median.get("ours")
    for name, values in median.items():
        cells = [
            cell(values[c], c, ours[c] if ours and name != "ours" else None) for c in COLUMNS
        ]
        rows.append(f"| {results[name][0].name} | " + " | ".join(cells) + " |")
    for name, why in absent.items():
        rows.append(f"| {name} | not measured: {why} |" + " |" * (len(COLUMNS) - 1))
    notes = []
    for program, runs in results.values():
        if runs and runs[-1]["notes"].get("buffers"):
            sizes = runs[-1]["notes"]["buffers"].items()
            listed = ", ".join(f"{name} {size:.0f} MB" for name, size in sizes)
            notes.append(f"- {program.name}: compute buffers by its own log: {listed}")
    return "\n".join(rows) + "\n" + ("\n" + "\n".join(notes) + "\n" if notes else "")


def versions(results, options):
    parts = []
    for program, runs in results.values():
        for said in (run["notes"] for run in runs):
            if "version" in said:
                parts.append(f"mere.run {said['version']}")
            for name, version in said.get("versions", {}).items():
                parts.append(f"{name} {version}")
    if options.sd_cli and any(name.startswith("sd-") for name in results):
        parts.append(f"stable-diffusion.cpp {options.sd_version or 'of unknown version'}")
    return ", ".join(dict.fromkeys(parts))


def document(results, absent, options):
    given = [f"--rounds {options.rounds}", f"--threads {options.threads}"]
    given += [f"--isa {options.isa}"] if options.isa else []
    given += ["--real-time"] if options.real_time else []
    return f"""# klein-slice: {options.size}x{options.size}, {options.steps} steps

Written by `bench/compare.py {" ".join(given)}` with the model of
`bench/klein_slice.py`: medians of interleaved runs, each a new process with its files in the page
cache. In brackets: how many times ours. What the columns count stands at the head of
`bench/compare.py`.

{table(results, absent)}
- Machine: {machine()}
- Versions: {versions(results, options)}
- Date: {datetime.date.today()}
"""


def parse(arguments):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--model", type=pathlib.Path, required=True, help="folder made by bench/klein_slice.py")
    add("--program", type=pathlib.Path, default=ROOT / "build/bin/mere.run")
    add("--sd-cli", type=pathlib.Path, help="sd-cli of stable-diffusion.cpp")
    add("--sd-version", help="for the table; it does not know it itself")
    add("--python", type=pathlib.Path, help="a Python with torch, diffusers and transformers")
    add("--rounds", type=int, default=3)
    add("--only", type=lambda s: s.split(","), default=[], help="e.g. ours,sd-q8_0,torch-f32")
    add("--threads", type=int, default=2)
    add("--isa", choices=("avx2",), help="cap ours and torch to these instructions")
    add("--size", type=int, default=512)
    add("--steps", type=int, default=3)
    add("--limit", type=float, default=1800, help="seconds after which a run is given up")
    add("--real-time", action="store_true", help="run each with chrt -r 1, ahead of other programs")
    add("--output", type=pathlib.Path, default=ROOT / "docs/perf/klein-slice.md")
    options = parser.parse_args(arguments)
    options.prefix = ["chrt", "-r", "1"] if options.real_time else []
    if not (options.model / "model_index.json").exists():
        parser.error(f"{options.model}: no model_index.json; make it with bench/klein_slice.py")
    return options


def main():
    options = parse(sys.argv[1:])
    with tempfile.TemporaryDirectory() as folder:
        chosen = programs(options, pathlib.Path(folder))
        absent = {p.name: p.missing() for p in chosen.values() if p.missing()}
        results = {name: (p, []) for name, p in chosen.items() if not p.missing()}
        read_once(options.model)
        if options.real_time:  # above what is measured: this script stamps the lines it reads
            os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(2))
        for turn in range(options.rounds):
            for name, (program, runs) in list(results.items()):
                try:
                    runs.append(program.run())
                except Failure as failure:
                    absent[program.name] = str(failure)
                    del results[name]
                    continue
                said = ", ".join(f"{c} {runs[-1][c]:.2f}" for c in COLUMNS)
                print(f"round {turn + 1}: {program.name}: {said}", file=sys.stderr)
    text = document(results, absent, options)
    options.output.write_text(text)
    print(text, end="")


if __name__ == "__main__":
    main()
