#!/usr/bin/env python3
"""Draw once with diffusers and print a JSON line at every stage; bench/compare.py runs this.

    python3 bench/torch_klein.py FOLDER --dtype float32 --output x.png
"""
import argparse
import json
import time


def say(stage, **values):
    # This clock is the same in every process, so the caller can compare it with its own.
    print(json.dumps({"stage": stage, "at": time.perf_counter(), **values}), flush=True)


def announced(stage, function):
    """The function, with a line before and after it."""

    def call(*arguments, **options):
        say(stage)
        result = function(*arguments, **options)
        say(stage + " done")
        return result

    return call


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), required=True)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--size", type=int, default=512)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--prompt", default="a red apple")
    parser.add_argument("--output", required=True)
    arguments = parser.parse_args()

    # Importing is part of what a person waits for, so the clock of the caller runs already.
    import diffusers
    import torch
    import transformers

    torch.set_num_threads(arguments.threads)
    versions = {m.__name__: m.__version__ for m in (torch, diffusers, transformers)}
    say("import", versions=versions, capability=torch.backends.cpu.get_cpu_capability())
    diffusers.utils.logging.disable_progress_bar()
    pipe = diffusers.Flux2KleinPipeline.from_pretrained(
        arguments.folder, torch_dtype=getattr(torch, arguments.dtype), local_files_only=True
    )
    pipe.set_progress_bar_config(disable=True)
    pipe.encode_prompt = announced("text", pipe.encode_prompt)
    pipe.transformer.forward = announced("step", pipe.transformer.forward)
    pipe.vae.decode = announced("decode", pipe.vae.decode)
    image = pipe(
        prompt=arguments.prompt,
        width=arguments.size,
        height=arguments.size,
        num_inference_steps=arguments.steps,
        generator=torch.Generator().manual_seed(arguments.seed),
    ).images[0]
    image.save(arguments.output)


if __name__ == "__main__":
    main()
