"""Small random models of the transformers library with inputs, one for each architecture that `convert` is tested on.

Each has all parts of the real model, with two layers and small widths. Nothing is downloaded.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
from torch import Tensor, nn
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    BertConfig,
    BertForSequenceClassification,
    CLIPConfig,
    CLIPModel,
    ConvNextConfig,
    ConvNextForImageClassification,
    DeiTConfig,
    DeiTForImageClassification,
    Dinov2Config,
    Dinov2ForImageClassification,
    DistilBertConfig,
    DistilBertForSequenceClassification,
    GemmaConfig,
    GemmaForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    MambaConfig,
    MambaForCausalLM,
    MobileNetV2Config,
    MobileNetV2ForImageClassification,
    OPTConfig,
    OPTForCausalLM,
    PreTrainedConfig,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
    ResNetConfig,
    ResNetForImageClassification,
    RobertaConfig,
    RobertaForMaskedLM,
    SwinConfig,
    SwinForImageClassification,
    T5Config,
    T5ForConditionalGeneration,
    ViTConfig,
    ViTForImageClassification,
    Wav2Vec2Config,
    Wav2Vec2ForCTC,
    WhisperConfig,
)
from transformers.models.whisper.modeling_whisper import WhisperEncoder

WORDS, LENGTH, SIDE = 96, 9, 32
NO_DROPOUT = {
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
}
ENCODER = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 128,
}
SPECIAL = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
TEXT = {"vocab_size": WORDS, "max_position_embeddings": 40}


def _words() -> Tensor:
    return torch.randint(3, WORDS, (2, LENGTH))


def _text() -> dict[str, Tensor]:
    return {"input_ids": _words(), "attention_mask": torch.ones(2, LENGTH, dtype=torch.long)}


def _two_texts() -> dict[str, Tensor]:
    return {**_text(), "decoder_input_ids": _words()}


def _picture() -> dict[str, Tensor]:
    return {"pixel_values": torch.randn(2, 3, SIDE, SIDE)}


def _sound() -> dict[str, Tensor]:
    return {"input_features": torch.randn(2, 8, 24)}


def _waves() -> dict[str, Tensor]:
    return {"input_values": torch.randn(2, 400)}


def _text_and_picture() -> dict[str, Tensor]:
    return {**_text(), **_picture()}


@dataclass(frozen=True)
class Family:
    """An architecture: class and configuration of a model, an example input, and options of `convert`."""

    name: str
    model_class: type[PreTrainedModel]
    config: PreTrainedConfig
    example: Callable[[], dict[str, Tensor]]
    gated: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)

    def build(self) -> nn.Module:
        """Return a new model with random weights, in evaluation mode."""
        return self.model_class(type(self.config).from_dict(self.config.to_dict())).eval()


FAMILIES = {
    family.name: family
    for family in (
        Family("BERT", BertForSequenceClassification, BertConfig(**ENCODER, **TEXT, **NO_DROPOUT), _text),
        Family("RoBERTa", RobertaForMaskedLM, RobertaConfig(**ENCODER, **TEXT, **NO_DROPOUT), _text),
        Family(
            "DistilBERT",
            DistilBertForSequenceClassification,
            DistilBertConfig(dim=32, hidden_dim=128, n_layers=2, n_heads=4, **TEXT, dropout=0.0, attention_dropout=0.0),
            _text,
        ),
        Family(
            "GPT-2",
            GPT2LMHeadModel,
            GPT2Config(n_embd=32, n_layer=2, n_head=4, n_positions=40, vocab_size=WORDS, **SPECIAL),
            _text,
        ),
        Family("Llama", LlamaForCausalLM, LlamaConfig(**ENCODER, **TEXT, num_key_value_heads=2, **SPECIAL), _text, gated=True),
        Family("Qwen2", Qwen2ForCausalLM, Qwen2Config(**ENCODER, **TEXT, num_key_value_heads=2, **SPECIAL), _text, gated=True),
        Family(
            "Gemma",
            GemmaForCausalLM,
            GemmaConfig(**ENCODER, **TEXT, num_key_value_heads=1, head_dim=8, **SPECIAL),
            _text,
            gated=True,
        ),
        Family(
            "T5",
            T5ForConditionalGeneration,
            T5Config(d_model=32, d_ff=128, d_kv=8, num_heads=4, num_layers=2, vocab_size=WORDS, dropout_rate=0.0),
            _two_texts,
        ),
        Family(
            "T5 gated",
            T5ForConditionalGeneration,
            T5Config(
                d_model=32,
                d_ff=128,
                d_kv=8,
                num_heads=4,
                num_layers=2,
                vocab_size=WORDS,
                dropout_rate=0.0,
                feed_forward_proj="gated-gelu",
            ),
            _two_texts,
            gated=True,
        ),
        Family(
            "BART",
            BartForConditionalGeneration,
            BartConfig(
                **TEXT,
                d_model=32,
                encoder_layers=2,
                decoder_layers=2,
                encoder_attention_heads=4,
                decoder_attention_heads=4,
                encoder_ffn_dim=128,
                decoder_ffn_dim=128,
                dropout=0.0,
                **SPECIAL,
                decoder_start_token_id=2,
                forced_eos_token_id=2,
            ),
            _two_texts,
        ),
        Family("ViT", ViTForImageClassification, ViTConfig(**ENCODER, **NO_DROPOUT, image_size=SIDE, patch_size=8), _picture),
        Family(
            "DeiT", DeiTForImageClassification, DeiTConfig(**ENCODER, **NO_DROPOUT, image_size=SIDE, patch_size=8), _picture
        ),
        Family(
            "Swin",
            SwinForImageClassification,
            SwinConfig(
                image_size=SIDE, patch_size=4, embed_dim=16, depths=[2, 2], num_heads=[2, 4], window_size=4, drop_path_rate=0.0
            ),
            _picture,
        ),
        Family(
            "ConvNeXt",
            ConvNextForImageClassification,
            ConvNextConfig(image_size=SIDE, num_stages=2, depths=[2, 2], hidden_sizes=[16, 32]),
            _picture,
        ),
        Family(
            "ResNet",
            ResNetForImageClassification,
            ResNetConfig(embedding_size=16, hidden_sizes=[32, 64], depths=[2, 2], layer_type="bottleneck"),
            _picture,
            options={"skip_pinned": True},
        ),
        Family(
            "MobileNetV2",
            MobileNetV2ForImageClassification,
            MobileNetV2Config(image_size=SIDE, depth_multiplier=0.25, min_depth=8),
            _picture,
        ),
        Family(
            "Whisper encoder",
            WhisperEncoder,
            WhisperConfig(
                d_model=32,
                encoder_layers=2,
                encoder_attention_heads=4,
                encoder_ffn_dim=128,
                num_mel_bins=8,
                max_source_positions=12,
            ),
            _sound,
        ),
        Family(
            "CLIP",
            CLIPModel,
            CLIPConfig(
                text_config={**ENCODER, **TEXT, **SPECIAL},
                vision_config={**ENCODER, "image_size": SIDE, "patch_size": 8},
                projection_dim=16,
            ),
            _text_and_picture,
        ),
        Family(
            "OPT",
            OPTForCausalLM,
            OPTConfig(
                **TEXT,
                hidden_size=32,
                word_embed_proj_dim=32,
                ffn_dim=128,
                num_hidden_layers=2,
                num_attention_heads=4,
                dropout=0.0,
            ),
            _text,
        ),
        Family(
            "DINOv2, SwiGLU",
            Dinov2ForImageClassification,
            Dinov2Config(
                hidden_size=32, num_hidden_layers=2, num_attention_heads=4, image_size=SIDE, patch_size=8, use_swiglu_ffn=True
            ),
            _picture,
            gated=True,
        ),
        Family(
            "Wav2Vec2",
            Wav2Vec2ForCTC,
            Wav2Vec2Config(
                **ENCODER,
                vocab_size=32,
                conv_dim=(16, 16),
                conv_kernel=(10, 3),
                conv_stride=(5, 2),
                num_conv_pos_embeddings=16,
                num_conv_pos_embedding_groups=4,
                layerdrop=0.0,
                apply_spec_augment=False,
            ),
            _waves,
            options={"skip_pinned": True},
        ),
        Family(
            "Mamba",
            MambaForCausalLM,
            MambaConfig(hidden_size=32, num_hidden_layers=2, vocab_size=WORDS, state_size=8, **SPECIAL),
            _text,
        ),
    )
}
