#include "kernels/cpu_op.h"

#include <chrono>
#include <dlfcn.h>
#include <new>
#include <stdexcept>

#include "arrays.h"

#include "kernels/activation.h"
#include "kernels/cpu/parallel.h"
#include "kernels/ref/reference.h"

namespace mere::test {
namespace {

Arrays doubled(const Arrays& in) { return {in[0] * mx::array(2.0F)}; }

mx::array throwing_op(const mx::array& x, const std::function<void()>& fail) {
  return cpu_op(
      "throwing", x.shape(), {x}, [fail](const auto&, auto&) { fail(); }, doubled);
}

TEST(CpuOp, CarriesAnExceptionToTheCallerOfEval) {
  const mx::array x = random_array({3, 4}, 500);
  for (int round = 0; round < 20; ++round) {
    mx::array y = throwing_op(x, [] { throw std::invalid_argument("no such kernel"); });
    try {
      mx::eval(y);
      FAIL() << "nothing was thrown";
    } catch (const std::runtime_error& e) {
      EXPECT_STREQ(e.what(), "no such kernel");
    }
    // The engine goes on working.
    expect_close(silu(x), ref::silu(values_of(x)));
  }
  mx::array z = throwing_op(x, [] { throw std::bad_alloc(); });
  EXPECT_THROW(mx::eval(z), std::runtime_error);
}

TEST(CpuOp, CarriesAnExceptionOfAParallelRegion) {
  mx::array y = throwing_op(mx::zeros({2}), [] {
    cpu::parallel_for(64, 1, [](int64_t, int64_t) { throw std::runtime_error("in parallel"); });
  });
  EXPECT_THROW(mx::eval(y), std::runtime_error);
}

TEST(CpuOp, CarriesAnExceptionThroughLaterNodes) {
  const mx::array x = random_array({3, 4}, 501);
  mx::array y = throwing_op(x, [] { throw std::runtime_error("early"); });
  for (int i = 0; i < 30; ++i) y = silu(y) + x;
  EXPECT_THROW(mx::eval(y), std::runtime_error);
  expect_close(silu(x), ref::silu(values_of(x)));
}

TEST(CpuOp, DoesNotRunForAnEmptyOutput) {
  mx::array y = throwing_op(mx::zeros({0, 4}), [] { throw std::runtime_error("ran"); });
  EXPECT_NO_THROW(mx::eval(y));
}

TEST(CpuOp, ChainsLikeOtherNodes) {
  const mx::array x = random_array({5, 6}, 502);
  mx::array y = x;
  Floats want = values_of(x);
  for (int i = 0; i < 50; ++i) {
    y = silu(y) * mx::array(1.5F);
    want = ref::silu(want);
    for (float& v : want) v *= 1.5F;
  }
  expect_close(y, want, 1e-4, 1e-5);
}

TEST(CpuOp, TransformsGoThroughTheFallback) {
  const auto op = [](const mx::array& x) {
    return cpu_op(
        "doubled", x.shape(), {x},
        [](const auto& in, auto& out) {
          const auto from = values_of(mx::array(in[0]));
          std::ranges::copy(from, out.template data<float>());
        },
        doubled);
  };
  const mx::array x = random_array({4}, 503);
  const auto [primal, tangent] = mx::jvp(op, x, mx::ones({4}));
  expect_close(tangent, Floats(4, 2.0F));
  expect_close(mx::grad([&](const mx::array& a) { return mx::sum(op(a)); })(x), Floats(4, 2.0F));
  const auto second = mx::grad([&](const mx::array& a) {
    return mx::sum(mx::square(mx::grad([](const mx::array& b) { return mx::sum(silu(b)); })(a)));
  });
  EXPECT_TRUE(all_finite(second(x)));
}

// --- The matrix product of the engine itself ---

TEST(Blas, EngineUsesOurMatrixProduct) {
  void* found = dlsym(RTLD_DEFAULT, "cblas_sgemm");
  ASSERT_NE(found, nullptr);
  Dl_info ours{};
  Dl_info us{};
  ASSERT_NE(dladdr(found, &ours), 0);
  ASSERT_NE(dladdr(reinterpret_cast<void*>(&throwing_op), &us), 0);
  EXPECT_EQ(ours.dli_fbase, us.dli_fbase) << "taken from " << ours.dli_fname;
}

TEST(Blas, IsNotTheScalarOne) {
  const mx::array a = random_array({1024, 1024}, 504);
  mx::eval(a);
  double best_seconds = 1e9;
  for (int i = 0; i < 3; ++i) {
    const auto start = std::chrono::steady_clock::now();
    mx::array c = mx::matmul(a, a);
    mx::eval(c);
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
    best_seconds = std::min(best_seconds, taken.count());
  }
  // 2 GFLOP: about 0.02 s on one core, above 0.4 s in scalar code.
  EXPECT_LT(best_seconds, 1.0);
}

TEST(Blas, MultipliesEveryLayout) {
  const mx::array a = random_array({2, 7, 13}, 505);
  const mx::array b = random_array({2, 13, 5}, 506);
  Floats want;
  for (int i = 0; i < 2; ++i) {
    const auto part = [&](const mx::array& m) {
      return mx::slice(m, {i, 0, 0}, {i + 1, m.shape(1), m.shape(2)});
    };
    const Floats y =
        ref::linear(values_of(part(a)), values_of(mx::swapaxes(part(b), 1, 2)), {}, 7, 13, 5);
    want.insert(want.end(), y.begin(), y.end());
  }
  const auto run = [&](const mx::array& left, const mx::array& right) {
    expect_close(mx::matmul(left, right), want);
  };
  run(a, b);
  run(stored_swapped(a, 1, 2), b);
  run(a, stored_swapped(b, 1, 2));
  run(stored_swapped(a, 1, 2), stored_swapped(b, 1, 2));
  run(inside_wider(a), inside_wider(b));
  run(stored_swapped(a, 0, 1), every_other(b));
  // One row, one column.
  expect_close(mx::matmul(random_array({1, 9}, 507), random_array({9, 4}, 508)),
               ref::linear(random_floats(9, 507),
                           values_of(mx::transpose(random_array({9, 4}, 508))), {}, 1, 9, 4));
  expect_close(mx::matmul(random_array({4, 9}, 509), random_array({9, 1}, 510)),
               ref::linear(random_floats(36, 509), random_floats(9, 510), {}, 4, 9, 1));
  // alpha and beta.
  const mx::array c = random_array({7, 5}, 511);
  const mx::array first = mx::reshape(mx::slice(a, {0, 0, 0}, {1, 7, 13}), {7, 13});
  const mx::array second = mx::reshape(mx::slice(b, {0, 0, 0}, {1, 13, 5}), {13, 5});
  expect_close(mx::addmm(c, first, second, 0.5F, 2.0F),
               values_of(mx::array(2.0F) * c + mx::array(0.5F) * mx::matmul(first, second)));
}

}  // namespace
}  // namespace mere::test
