// The makers of the table in ops.cpp. Sizes are named there; batches are 1.
#pragma once

#include "op.h"

namespace mere::bench {

// matrix_ops.cpp
Problem linear_problem(const Case& c);
Problem attention_problem(const Case& c);

// weight_ops.cpp
Problem embedding_problem(const Case& c);
Problem quantize_problem(const Case& c);
Problem dequantize_problem(const Case& c);

// image_ops.cpp
Problem conv2d_problem(const Case& c);  // fused: silu(group_norm) before, a residual after
Problem conv3d_problem(const Case& c);  // causal in time
Problem group_norm_problem(const Case& c);
Problem upsample_problem(const Case& c);
Problem pixel_shuffle_problem(const Case& c);
Problem pixel_unshuffle_problem(const Case& c);

// row_ops.cpp
Problem rms_norm_problem(const Case& c);
Problem layer_norm_problem(const Case& c);
Problem rope_problem(const Case& c);
Problem silu_problem(const Case& c);
Problem swiglu_problem(const Case& c);
Problem gelu_problem(const Case& c);
Problem geglu_problem(const Case& c);
Problem gated_residual_problem(const Case& c);
Problem softmax_problem(const Case& c);
Problem top_k_problem(const Case& c);
Problem argmax_problem(const Case& c);
Problem concat_problem(const Case& c);  // two halves along the last axis

}  // namespace mere::bench
