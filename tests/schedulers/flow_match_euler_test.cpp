#include "schedulers/flow_match_euler.h"

#include <cmath>
#include <gtest/gtest.h>
#include <limits>

#include "core/error.h"
#include "core/json.h"

namespace mere {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

TEST(FlowMatchEuler, MatchesTheReferenceSchedules) {
  const Json file = parse_json_file(fs::path(MERE_FIXTURES) / "klein/cases/schedule.json");
  ASSERT_FALSE(file.at("rows").empty());
  for (const Json& row : file.at("rows")) {
    const auto steps = row.at("steps").get<int>();
    const auto tokens = row.at("image_seq_len").get<int64_t>();
    SCOPED_TRACE(std::to_string(tokens) + " tokens, " + std::to_string(steps) + " steps");
    const double mu = flux2_empirical_mu(tokens, steps);
    EXPECT_NEAR(mu, row.at("mu").get<double>(), 1e-12);

    const FlowMatchSchedule schedule = flow_match_dynamic(steps, mu);
    const auto sigmas = row.at("sigmas").get<std::vector<double>>();
    const auto timesteps = row.at("timesteps").get<std::vector<double>>();
    ASSERT_EQ(schedule.sigmas.size(), sigmas.size());
    ASSERT_EQ(schedule.timesteps.size(), timesteps.size());
    for (size_t i = 0; i < sigmas.size(); ++i) EXPECT_NEAR(schedule.sigmas[i], sigmas[i], 1e-6);
    for (size_t i = 0; i < timesteps.size(); ++i) {
      EXPECT_NEAR(schedule.timesteps[i], timesteps[i], 1e-3);
    }
  }
}

TEST(FlowMatchEuler, OneStepStartsAtOne) {
  const FlowMatchSchedule schedule = flow_match_dynamic(1, 2.0);
  EXPECT_EQ(schedule.sigmas, (std::vector<float>{1.0F, 0.0F}));
  EXPECT_EQ(schedule.timesteps, std::vector<float>{1000.0F});
}

TEST(FlowMatchEuler, MuForgetsTheStepsAbove4300Tokens) {
  EXPECT_EQ(flux2_empirical_mu(4301, 4), flux2_empirical_mu(4301, 50));
  EXPECT_NE(flux2_empirical_mu(4300, 4), flux2_empirical_mu(4300, 50));
}

TEST(FlowMatchEuler, StaticShiftIsTheDynamicOneOfItsLogarithm) {
  for (const double shift : {0.5, 1.0, 3.0}) {
    const FlowMatchSchedule fixed = flow_match_static(7, shift);
    const FlowMatchSchedule dynamic = flow_match_dynamic(7, std::log(shift));
    ASSERT_EQ(fixed.sigmas.size(), dynamic.sigmas.size());
    for (size_t i = 0; i < fixed.sigmas.size(); ++i) {
      EXPECT_NEAR(fixed.sigmas[i], dynamic.sigmas[i], 1e-6);
    }
  }
}

TEST(FlowMatchEuler, SigmasFallStrictlyToZero) {
  for (const int steps : {1, 2, 4, 50, 1000}) {
    const FlowMatchSchedule schedule = flow_match_dynamic(steps, flux2_empirical_mu(4096, steps));
    ASSERT_EQ(schedule.sigmas.size(), static_cast<size_t>(steps) + 1);
    EXPECT_EQ(schedule.sigmas.front(), 1.0F);
    EXPECT_EQ(schedule.sigmas.back(), 0.0F);
    for (size_t i = 1; i < schedule.sigmas.size(); ++i) {
      EXPECT_LT(schedule.sigmas[i], schedule.sigmas[i - 1]) << i << " of " << steps;
    }
  }
}

TEST(FlowMatchEuler, GivenSigmasAreTakenAsTheyAre) {
  const std::vector<float> sigmas = {0.75F, 0.5F};
  const FlowMatchSchedule schedule = flow_match_explicit(sigmas);
  EXPECT_EQ(schedule.sigmas, (std::vector<float>{0.75F, 0.5F, 0.0F}));
  EXPECT_EQ(schedule.timesteps, (std::vector<float>{750.0F, 500.0F}));
}

TEST(FlowMatchEuler, RefusesWhatIsNoSchedule) {
  for (const int steps : {0, -1, kMaxSteps + 1}) {
    EXPECT_THROW(flux2_empirical_mu(1024, steps), UsageError);
    EXPECT_THROW(flow_match_dynamic(steps, 1.0), UsageError);
    EXPECT_THROW(flow_match_static(steps, 1.0), UsageError);
  }
  EXPECT_THROW(flux2_empirical_mu(0, 4), UsageError);
  EXPECT_THROW(flow_match_dynamic(4, kNan), UsageError);
  EXPECT_THROW(flow_match_dynamic(4, 1000), UsageError);
  EXPECT_THROW(flow_match_static(4, 0), UsageError);
  EXPECT_THROW(flow_match_static(4, kNan), UsageError);
  for (const std::vector<float>& sigmas : std::vector<std::vector<float>>{
           {}, {1.5F}, {0.5F, 0.5F}, {0.5F, 0.75F}, {0.5F, 0.0F}, {static_cast<float>(kNan)}}) {
    EXPECT_THROW(flow_match_explicit(sigmas), UsageError);
  }
  try {
    flow_match_dynamic(0, 1.0);
  } catch (const UsageError& e) {
    EXPECT_EQ(e.info().field, "steps");
    EXPECT_NE(std::string(e.what()).find("0"), std::string::npos);
  }
}

}  // namespace
}  // namespace mere
