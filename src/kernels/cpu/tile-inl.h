// The shape of a float32 tile of a product, per target: what gemm.cpp and winograd.cpp pack for.
// Included once per target, inside the usual guard.
#if defined(MERE_KERNELS_CPU_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MERE_KERNELS_CPU_TILE_INL_H_
#undef MERE_KERNELS_CPU_TILE_INL_H_
#else
#define MERE_KERNELS_CPU_TILE_INL_H_
#endif

#include <cstdint>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace mere::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Accumulators of a tile fill the vector registers but for two of b and one or two of a.
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3
constexpr int kTileRows = 14;
#elif HWY_ARCH_ARM_A64
constexpr int kTileRows = 12;
#else
constexpr int kTileRows = 6;
#endif

using Wide = hn::ScalableTag<float>;

// Columns: two vectors.
HWY_INLINE int64_t TileColumns() { return 2 * static_cast<int64_t>(hn::Lanes(Wide())); }

}  // namespace mere::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
