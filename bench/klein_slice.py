#!/usr/bin/env python3
"""Make the checkpoint "klein-slice": FLUX.2 Klein 4B cut short, with random weights.

    python3 bench/klein_slice.py FOLDER        needs numpy; 2.3 GB, and 1.3 GB more for the peers
    python3 bench/klein_slice.py --full --no-peers FOLDER    nothing cut: 16 GB, and 24 GB of memory

The widths are those of the publication, so that one step costs what a step costs there, block for
block: hidden 3072, 24 heads of 128, MLP 9216, 1 double and 2 single blocks (published: 5 and 20),
text of width 1536 (published: 7680). The text encoder is a Qwen3 of 36 layers, hidden 512,
intermediate 1536, 32 query and 8 key heads of 128, a vocabulary of 151936. The autoencoder has its
full size. All weights are bf16 except the two statistics of the latents, which are f32.

FOLDER gets the diffusers layout, which our program and diffusers read. FOLDER/peers/ gets the
transformer again under the names of its publication, for stable-diffusion.cpp; that program reads
the text encoder and the autoencoder from the diffusers folders.
"""
import argparse
import json
import pathlib
import random

import numpy as np

HIDDEN, HEADS, HEAD_DIM, MLP = 3072, 24, 128, 9216
DOUBLE_BLOCKS, SINGLE_BLOCKS = 1, 2
TEXT_HIDDEN, TEXT_MLP, TEXT_LAYERS, TEXT_HEADS, TEXT_KV_HEADS = 512, 1536, 36, 32, 8
CONTEXT = 3 * TEXT_HIDDEN  # the hidden states 9, 18 and 27 side by side
VOCABULARY = 151936
FIRST_SPECIAL_TOKEN = 151643  # stable-diffusion.cpp has Qwen's own vocabulary in its source
LATENTS = 32
VAE_WIDTHS = (128, 256, 512, 512)
# stable-diffusion.cpp has the statistics of the published latents in its source; with their usual
# size here as well, all programs decode latents of the same scale.
LATENT_VARIANCE = 3.1

SPECIAL_TOKENS = (
    "<|endoftext|> <|im_start|> <|im_end|> <|object_ref_start|> <|object_ref_end|> <|box_start|> "
    "<|box_end|> <|quad_start|> <|quad_end|> <|vision_start|> <|vision_end|> <|vision_pad|> "
    "<|image_pad|> <|video_pad|> <tool_call> </tool_call> <|fim_prefix|> <|fim_middle|> "
    "<|fim_suffix|> <|fim_pad|> <|repo_name|> <|file_sep|> <tool_response> </tool_response> "
    "<think> </think>"
).split()
CHAT_TEMPLATE = (
    "{%- for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}"
    "{%- endfor %}{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}"
    "{%- if enable_thinking is defined and not enable_thinking %}"
    "{{ '<think>\\n\\n</think>\\n\\n' }}{%- endif %}{%- endif %}"
)
SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|"
    r"\s*[\r\n]+|\s+(?!\S)|\s+"
)


def to_bf16(values):
    """float32 -> the upper 16 bits, rounded to nearest even."""
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def save(path, tensors):
    """tensors: name -> uint16 (bf16), float32 or int64 array, written as safetensors."""
    kinds = {np.dtype(np.uint16): "BF16", np.dtype(np.float32): "F32", np.dtype(np.int64): "I64"}
    header, offset = {"__metadata__": {"format": "pt"}}, 0
    for name, array in tensors.items():
        end = offset + array.nbytes
        header[name] = {
            "dtype": kinds[array.dtype],
            "shape": list(array.shape),
            "data_offsets": [offset, end],
        }
        offset = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for array in tensors.values():
            file.write(array.tobytes())


def save_json(path, value):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n")


class Random:
    """Weights that keep the size of what passes through them, times gain."""

    def __init__(self, seed):
        self.generator = np.random.default_rng(seed)
        self.tensors = {}

    def normal(self, name, shape, deviation, mean=0.0):
        values = self.generator.standard_normal(shape, dtype=np.float32)
        self.tensors[name] = to_bf16(values * np.float32(deviation) + np.float32(mean))

    def linear(self, name, out, into, gain=1.0):
        self.normal(name + ".weight", (out, into), gain * into**-0.5)

    def linear_bias(self, name, out, into):
        self.linear(name, out, into)
        self.normal(name + ".bias", (out,), 0.02)

    def conv(self, name, out, into, size, gain=1.0):
        self.normal(name + ".weight", (out, into, size, size), gain * (into * size * size) ** -0.5)
        self.normal(name + ".bias", (out,), 0.02)

    def scale(self, name, width):
        self.normal(name, (width,), 0.1, 1.0)

    def group_norm(self, name, width):
        self.scale(name + ".weight", width)
        self.normal(name + ".bias", (width,), 0.1)


def transformer():
    r = Random(1)
    embed = "time_guidance_embed.timestep_embedder."
    r.linear(embed + "linear_1", HIDDEN, 256)
    r.linear(embed + "linear_2", HIDDEN, HIDDEN)
    for stream in ("img", "txt"):
        r.linear(f"double_stream_modulation_{stream}.linear", 6 * HIDDEN, HIDDEN, 0.5)
    r.linear("single_stream_modulation.linear", 3 * HIDDEN, HIDDEN, 0.5)
    r.linear("x_embedder", HIDDEN, 4 * LATENTS)
    r.linear("context_embedder", HIDDEN, CONTEXT)
    for i in range(DOUBLE_BLOCKS):
        block = f"transformer_blocks.{i}."
        names = ("to_q", "to_k", "to_v", "to_out.0", "add_q_proj", "add_k_proj", "add_v_proj")
        for name in (*names, "to_add_out"):
            r.linear(f"{block}attn.{name}", HIDDEN, HIDDEN)
        for name in ("norm_q", "norm_k", "norm_added_q", "norm_added_k"):
            r.scale(f"{block}attn.{name}.weight", HEAD_DIM)
        for name in ("ff", "ff_context"):
            r.linear(f"{block}{name}.linear_in", 2 * MLP, HIDDEN)
            r.linear(f"{block}{name}.linear_out", HIDDEN, MLP)
    for i in range(SINGLE_BLOCKS):
        block = f"single_transformer_blocks.{i}.attn."
        r.linear(block + "to_qkv_mlp_proj", 3 * HIDDEN + 2 * MLP, HIDDEN)
        r.linear(block + "to_out", HIDDEN, HIDDEN + MLP)
        r.scale(block + "norm_q.weight", HEAD_DIM)
        r.scale(block + "norm_k.weight", HEAD_DIM)
    r.linear("norm_out.linear", 2 * HIDDEN, HIDDEN, 0.5)
    r.linear("proj_out", 4 * LATENTS, HIDDEN)
    return r.tensors


def published_names(tensors):
    """The transformer as it was first published: q, k and v in one, other names, and the shift
    before the scale in the last norm."""
    t = {name.removesuffix(".weight"): array for name, array in tensors.items()}
    embed = "time_guidance_embed.timestep_embedder."
    out = {
        "img_in.weight": t["x_embedder"],
        "txt_in.weight": t["context_embedder"],
        "time_in.in_layer.weight": t[embed + "linear_1"],
        "time_in.out_layer.weight": t[embed + "linear_2"],
        "final_layer.linear.weight": t["proj_out"],
    }
    scale, shift = np.split(t["norm_out.linear"], 2)
    out["final_layer.adaLN_modulation.1.weight"] = np.concatenate([shift, scale])
    for name in ("double_stream_modulation_img", "double_stream_modulation_txt"):
        out[name + ".lin.weight"] = t[name + ".linear"]
    out["single_stream_modulation.lin.weight"] = t["single_stream_modulation.linear"]
    streams = {
        "img": ("to_q to_k to_v to_out.0 norm_q norm_k".split(), "ff"),
        "txt": ("add_q_proj add_k_proj add_v_proj to_add_out norm_added_q norm_added_k".split(),
                "ff_context"),
    }
    for i in range(DOUBLE_BLOCKS):
        old, new = f"transformer_blocks.{i}.", f"double_blocks.{i}."
        for stream, (names, mlp) in streams.items():
            q, k, v, proj, norm_q, norm_k = (t[f"{old}attn.{name}"] for name in names)
            out[f"{new}{stream}_attn.qkv.weight"] = np.concatenate([q, k, v])
            out[f"{new}{stream}_attn.proj.weight"] = proj
            out[f"{new}{stream}_attn.norm.query_norm.scale"] = norm_q
            out[f"{new}{stream}_attn.norm.key_norm.scale"] = norm_k
            out[f"{new}{stream}_mlp.0.weight"] = t[f"{old}{mlp}.linear_in"]
            out[f"{new}{stream}_mlp.2.weight"] = t[f"{old}{mlp}.linear_out"]
    for i in range(SINGLE_BLOCKS):
        old, new = f"single_transformer_blocks.{i}.attn.", f"single_blocks.{i}."
        out[new + "linear1.weight"] = t[old + "to_qkv_mlp_proj"]
        out[new + "linear2.weight"] = t[old + "to_out"]
        out[new + "norm.query_norm.scale"] = t[old + "norm_q"]
        out[new + "norm.key_norm.scale"] = t[old + "norm_k"]
    return out


def text_encoder():
    r = Random(2)
    r.normal("model.embed_tokens.weight", (VOCABULARY, TEXT_HIDDEN), 1.0)
    for i in range(TEXT_LAYERS):
        layer = f"model.layers.{i}."
        r.scale(layer + "input_layernorm.weight", TEXT_HIDDEN)
        for name, heads in (("q", TEXT_HEADS), ("k", TEXT_KV_HEADS), ("v", TEXT_KV_HEADS)):
            r.linear(f"{layer}self_attn.{name}_proj", heads * HEAD_DIM, TEXT_HIDDEN)
        r.linear(layer + "self_attn.o_proj", TEXT_HIDDEN, TEXT_HEADS * HEAD_DIM)
        r.scale(layer + "self_attn.q_norm.weight", HEAD_DIM)
        r.scale(layer + "self_attn.k_norm.weight", HEAD_DIM)
        r.scale(layer + "post_attention_layernorm.weight", TEXT_HIDDEN)
        r.linear(layer + "mlp.gate_proj", TEXT_MLP, TEXT_HIDDEN)
        r.linear(layer + "mlp.up_proj", TEXT_MLP, TEXT_HIDDEN)
        r.linear(layer + "mlp.down_proj", TEXT_HIDDEN, TEXT_MLP)
    r.scale("model.norm.weight", TEXT_HIDDEN)
    return r.tensors


def resnet(r, name, out, into):
    r.group_norm(name + ".norm1", into)
    r.conv(name + ".conv1", out, into, 3)
    r.group_norm(name + ".norm2", out)
    r.conv(name + ".conv2", out, out, 3)
    if out != into:
        r.conv(name + ".conv_shortcut", out, into, 1)


def mid_block(r, name, width):
    attention = name + ".attentions.0"
    r.group_norm(attention + ".group_norm", width)
    for part in ("to_q", "to_k", "to_v", "to_out.0"):
        r.linear_bias(f"{attention}.{part}", width, width)
    resnet(r, name + ".resnets.0", width, width)
    resnet(r, name + ".resnets.1", width, width)


def autoencoder():
    r = Random(3)
    width = VAE_WIDTHS[0]
    r.conv("encoder.conv_in", width, 3, 3)
    for i, out in enumerate(VAE_WIDTHS):
        block = f"encoder.down_blocks.{i}."
        for j in range(2):
            resnet(r, f"{block}resnets.{j}", out, width)
            width = out
        if i + 1 < len(VAE_WIDTHS):
            r.conv(block + "downsamplers.0.conv", width, width, 3)
    mid_block(r, "encoder.mid_block", width)
    r.group_norm("encoder.conv_norm_out", width)
    r.conv("encoder.conv_out", 2 * LATENTS, width, 3)
    r.conv("decoder.conv_in", width, LATENTS, 3)
    mid_block(r, "decoder.mid_block", width)
    for i, out in enumerate(reversed(VAE_WIDTHS)):
        block = f"decoder.up_blocks.{i}."
        for j in range(3):
            resnet(r, f"{block}resnets.{j}", out, width)
            width = out
        if i + 1 < len(VAE_WIDTHS):
            r.conv(block + "upsamplers.0.conv", width, width, 3)
    r.group_norm("decoder.conv_norm_out", width)
    r.conv("decoder.conv_out", 3, width, 3, 0.8)
    r.conv("quant_conv", 2 * LATENTS, 2 * LATENTS, 1)
    r.conv("post_quant_conv", LATENTS, LATENTS, 1)
    r.tensors["bn.running_mean"] = np.zeros(4 * LATENTS, np.float32)
    r.tensors["bn.running_var"] = np.full(4 * LATENTS, LATENT_VARIANCE, np.float32)
    r.tensors["bn.num_batches_tracked"] = np.zeros((), np.int64)
    return r.tensors


def byte_characters():
    """The readable character of every byte in a byte-level vocabulary (as in GPT-2)."""
    readable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [byte for byte in range(256) if byte not in readable]
    return [chr(b) for b in readable] + [chr(256 + i) for i in range(len(hidden))]


def write_tokenizer(folder):
    """A vocabulary of Qwen's size and ids whose merges are made up: reading it costs what reading
    the real one costs."""
    draw = random.Random(4)
    tokens = byte_characters()
    words = [chr(c) for c in range(ord("a"), ord("z") + 1)] + ["\u0120"]
    known, merges = set(tokens), []
    while len(tokens) < FIRST_SPECIAL_TOKEN:
        left, right = draw.choice(words), draw.choice(words)
        joined = left + right
        if joined in known or "\u0120" in right:
            continue
        known.add(joined)
        tokens.append(joined)
        merges.append([left, right])
        if len(joined) <= 6:  # longer ones are not merged further
            words.append(joined)
    vocabulary = {token: i for i, token in enumerate(tokens)}
    specials = [
        {
            "id": len(tokens) + i,
            "content": content,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": content.startswith("<|") and "fim" not in content,
        }
        for i, content in enumerate(SPECIAL_TOKENS)
    ]
    byte_level = {
        "type": "ByteLevel",
        "add_prefix_space": False,
        "trim_offsets": False,
        "use_regex": False,
    }
    split = {
        "type": "Split",
        "pattern": {"Regex": SPLIT},
        "behavior": "Isolated",
        "invert": False,
    }
    save_json(
        folder / "tokenizer.json",
        {
            "version": "1.0",
            "truncation": None,
            "padding": None,
            "added_tokens": specials,
            "normalizer": {"type": "NFC"},
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, byte_level]},
            "post_processor": byte_level,
            "decoder": byte_level,
            "model": {
                "type": "BPE",
                "dropout": None,
                "unk_token": None,
                "continuing_subword_prefix": None,
                "end_of_word_suffix": None,
                "fuse_unk": False,
                "byte_fallback": False,
                "ignore_merges": False,
                "vocab": vocabulary,
                "merges": merges,
            },
        },
    )
    save_json(folder / "vocab.json", vocabulary)
    (folder / "merges.txt").write_text("".join(f"{a} {b}\n" for a, b in merges))
    save_json(
        folder / "tokenizer_config.json",
        {
            "added_tokens_decoder": {
                str(token["id"]): {k: v for k, v in token.items() if k != "id"}
                for token in specials
            },
            "add_prefix_space": False,
            "bos_token": None,
            "eos_token": "<|im_end|>",
            "pad_token": "<|endoftext|>",
            "unk_token": None,
            "model_max_length": 131072,
            "tokenizer_class": "Qwen2Tokenizer",
        },
    )
    (folder / "chat_template.jinja").write_text(CHAT_TEMPLATE)


def write_configs(folder):
    save_json(
        folder / "model_index.json",
        {
            "_class_name": "Flux2KleinPipeline",
            "_diffusers_version": "0.37.0",
            "is_distilled": True,
            "scheduler": ["diffusers", "FlowMatchEulerDiscreteScheduler"],
            "text_encoder": ["transformers", "Qwen3ForCausalLM"],
            "tokenizer": ["transformers", "Qwen2TokenizerFast"],
            "transformer": ["diffusers", "Flux2Transformer2DModel"],
            "vae": ["diffusers", "AutoencoderKLFlux2"],
        },
    )
    save_json(
        folder / "transformer/config.json",
        {
            "_class_name": "Flux2Transformer2DModel",
            "attention_head_dim": HEAD_DIM,
            "axes_dims_rope": [32, 32, 32, 32],
            "eps": 1e-6,
            "guidance_embeds": False,
            "in_channels": 4 * LATENTS,
            "joint_attention_dim": CONTEXT,
            "mlp_ratio": MLP / HIDDEN,
            "num_attention_heads": HEADS,
            "num_layers": DOUBLE_BLOCKS,
            "num_single_layers": SINGLE_BLOCKS,
            "out_channels": None,
            "patch_size": 1,
            "rope_theta": 2000,
            "timestep_guidance_channels": 256,
        },
    )
    save_json(
        folder / "text_encoder/config.json",
        {
            "architectures": ["Qwen3ForCausalLM"],
            "model_type": "qwen3",
            "attention_bias": False,
            "attention_dropout": 0.0,
            "bos_token_id": 151643,
            "eos_token_id": 151645,
            "dtype": "bfloat16",
            "head_dim": HEAD_DIM,
            "hidden_act": "silu",
            "hidden_size": TEXT_HIDDEN,
            "initializer_range": 0.02,
            "intermediate_size": TEXT_MLP,
            "max_position_embeddings": 40960,
            "num_attention_heads": TEXT_HEADS,
            "num_hidden_layers": TEXT_LAYERS,
            "num_key_value_heads": TEXT_KV_HEADS,
            "rms_norm_eps": 1e-6,
            "rope_scaling": None,
            "rope_theta": 1000000,
            "tie_word_embeddings": True,
            "use_cache": True,
            "vocab_size": VOCABULARY,
        },
    )
    save_json(
        folder / "vae/config.json",
        {
            "_class_name": "AutoencoderKLFlux2",
            "act_fn": "silu",
            "batch_norm_eps": 1e-4,
            "batch_norm_momentum": 0.1,
            "block_out_channels": VAE_WIDTHS,
            "down_block_types": ["DownEncoderBlock2D"] * 4,
            "in_channels": 3,
            "latent_channels": LATENTS,
            "layers_per_block": 2,
            "mid_block_add_attention": True,
            "norm_num_groups": 32,
            "out_channels": 3,
            "patch_size": [2, 2],
            "sample_size": 1024,
            "up_block_types": ["UpDecoderBlock2D"] * 4,
            "use_post_quant_conv": True,
            "use_quant_conv": True,
        },
    )
    save_json(
        folder / "scheduler/scheduler_config.json",
        {
            "_class_name": "FlowMatchEulerDiscreteScheduler",
            "base_image_seq_len": 256,
            "base_shift": 0.5,
            "max_image_seq_len": 4096,
            "max_shift": 1.15,
            "num_train_timesteps": 1000,
            "shift": 3.0,
            "time_shift_type": "exponential",
            "use_dynamic_shifting": True,
        },
    )


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--no-peers", action="store_true", help="leave out FOLDER/peers")
    parser.add_argument("--full", action="store_true", help="the sizes of the publication")
    arguments = parser.parse_args()
    if arguments.full:
        global DOUBLE_BLOCKS, SINGLE_BLOCKS, TEXT_HIDDEN, TEXT_MLP, CONTEXT
        DOUBLE_BLOCKS, SINGLE_BLOCKS = 5, 20
        TEXT_HIDDEN, TEXT_MLP = 2560, 9728
        CONTEXT = 3 * TEXT_HIDDEN
    folder = arguments.folder
    write_tokenizer(folder / "tokenizer")
    save(folder / "text_encoder/model.safetensors", text_encoder())
    save(folder / "vae/diffusion_pytorch_model.safetensors", autoencoder())
    tensors = transformer()
    save(folder / "transformer/diffusion_pytorch_model.safetensors", tensors)
    if not arguments.no_peers:
        save(folder / "peers/transformer-bf16.safetensors", published_names(tensors))
    write_configs(folder)  # last: with model_index.json the folder is a model


if __name__ == "__main__":
    main()
