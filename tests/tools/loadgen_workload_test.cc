// kvbench's input and its interpretation: properties, workloads, operations, keys and values.

#include <cmath>
#include <cstdint>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/subprocess.h"
#include "tools/loadgen/workload/insert_counter.h"
#include "tools/loadgen/workload/operations.h"
#include "tools/loadgen/workload/properties.h"
#include "tools/loadgen/workload/records.h"
#include "tools/loadgen/workload/workload.h"

namespace osprey::loadgen {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

Properties Parsed(absl::string_view text) {
  Properties properties;
  const absl::Status status = ParseProperties(text, properties);
  EXPECT_TRUE(status.ok()) << status;
  return properties;
}

std::string ErrorOf(absl::string_view text) {
  Properties properties;
  const absl::Status status = ParseProperties(text, properties);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  return std::string(status.message());
}

TEST(PropertiesTest, AreReadAsJavaReadsThem) {
  EXPECT_EQ(Parsed("# a comment\n"
                   "   ! another \\\n"
                   "a=1\r\n"
                   "b : 2\r"
                   "c 3 4\n"
                   "\n"
                   "  d\t=\t5  \n"
                   "e\n"
                   "f==6\n"
                   "g\\ h\\=i = j\n"
                   "k = one, \\\n"
                   "      two\\\n"
                   "   !three\n"
                   "l = \\u00e9\\t\\z\\\\\n"
                   "a=7"),
            (Properties{{"a", "7"},
                        {"b", "2"},
                        {"c", "3 4"},
                        {"d", "5  "},
                        {"e", ""},
                        {"f", "=6"},
                        {"g h=i", "j"},
                        {"k", "one, two!three"},
                        {"l", "\xc3\xa9\tz\\"}}));
}

TEST(PropertiesTest, AnEmptyFileHasNone) {
  EXPECT_THAT(Parsed(""), IsEmpty());
  EXPECT_THAT(Parsed("\n\r\n# only this \\"), IsEmpty());
}

TEST(PropertiesTest, WhatIsNoPropertiesIsRefusedWithItsLine) {
  EXPECT_THAT(ErrorOf("a=1\nb=\\u12\n"), AllOf(StartsWith("line 2:"), HasSubstr("\\u")));
  EXPECT_THAT(ErrorOf("a=\\uzzzz"), HasSubstr("hexadecimal"));
  EXPECT_THAT(ErrorOf("a=\\u+123"), HasSubstr("hexadecimal"));
  EXPECT_THAT(ErrorOf("a=\\u0000"), HasSubstr("hexadecimal"));
  EXPECT_THAT(ErrorOf(absl::string_view("a=1\n\nb\0c=2", 10)), StartsWith("line 3: a byte 0"));
  EXPECT_THAT(ErrorOf("=1"), HasSubstr("no name"));
  EXPECT_THAT(ErrorOf(std::string(300, 'x')), HasSubstr("300 bytes"));
  EXPECT_THAT(ErrorOf(std::string(kPropertiesBytesMax + 1, 'x')), HasSubstr("no properties"));
}

TEST(PropertiesTest, AnyBytesAreEitherTakenOrRefused) {
  const uint32_t seed = 20261122;
  Random random(seed);
  constexpr absl::string_view kBytes("ab=: \\\\\\u0\n\r#!\t\f\x80\xff\0", 18);
  for (int i = 0; i < 20'000; ++i) {
    std::string text;
    for (uint64_t left = random.Below(40); left > 0; --left)
      text += kBytes[random.Below(kBytes.size())];
    Properties properties;
    ParseProperties(text, properties).IgnoreError();
    EXPECT_LE(properties.size(), text.size());
  }
}

TEST(PropertiesTest, AFileThatCannotBeReadIsNamed) {
  Properties properties;
  for (const std::string& path : {std::string("/absent/workload"), NewTemporaryDirectory()}) {
    const absl::Status status = ReadPropertiesFile(path, properties);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << path;
    EXPECT_THAT(std::string(status.message()), HasSubstr(path));
  }
}

TEST(PropertiesTest, AnAssignmentHasANameAndAnEqualsSign) {
  Properties properties;
  EXPECT_TRUE(ParseAssignment("a=b=c", properties).ok());
  EXPECT_TRUE(ParseAssignment("d=", properties).ok());
  EXPECT_EQ(properties, (Properties{{"a", "b=c"}, {"d", ""}}));
  EXPECT_FALSE(ParseAssignment("a", properties).ok());
  EXPECT_FALSE(ParseAssignment("=b", properties).ok());
}

Properties Preset(absl::string_view name) {
  absl::StatusOr<Properties> preset = PresetWorkload(name);
  EXPECT_TRUE(preset.ok()) << preset.status();
  (*preset)["recordcount"] = "1000";
  return *preset;
}

Workload Made(const Properties& properties) {
  std::vector<std::string> notes;
  absl::StatusOr<Workload> workload = ParseWorkload(properties, notes);
  EXPECT_TRUE(workload.ok()) << workload.status();
  return workload.ok() ? *workload : Workload();
}

Workload Made(absl::string_view name, const Properties& more = {}) {
  Properties properties = Preset(name);
  for (const auto& [key, value] : more) properties[key] = value;
  return Made(properties);
}

std::string Refused(const Properties& properties) {
  std::vector<std::string> notes;
  const absl::StatusOr<Workload> workload = ParseWorkload(properties, notes);
  EXPECT_EQ(workload.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(workload.status().message());
}

TEST(WorkloadTest, TheCoreWorkloadsAreYcsbs) {
  struct Core {
    const char* name;
    std::array<double, kOperationKinds> shares;  // read, update, insert, scan, read-modify-write
    Requests requests;
  };
  for (const Core& core :
       std::vector<Core>{{"a", {0.5, 0.5, 0, 0, 0}, Requests::kZipfian},
                         {"b", {0.95, 0.05, 0, 0, 0}, Requests::kZipfian},
                         {"c", {1, 0, 0, 0, 0}, Requests::kZipfian},
                         {"d", {0.95, 0, 0.05, 0, 0}, Requests::kLatest},
                         {"e", {0, 0, 0.05, 0.95, 0}, Requests::kZipfian},
                         {"workloadf", {0.5, 0, 0, 0, 0.5}, Requests::kZipfian}}) {
    const Workload workload = Made(core.name);
    EXPECT_EQ(workload.shares, core.shares) << core.name;
    EXPECT_EQ(workload.requests, core.requests) << core.name;
    EXPECT_EQ(workload.value_bytes_max(), 1000u);
  }
  EXPECT_EQ(Made("e").scan_max, 100u);
  EXPECT_EQ(Made("etc").sizes, Sizes::kEtc);
  for (const char* none : {"g", "", "A", "workload", "aa"}) EXPECT_FALSE(PresetWorkload(none).ok());
}

TEST(WorkloadTest, YcsbsOwnFileIsUnderstood) {
  const Workload workload = Made(
      Parsed("# Yahoo! Cloud System Benchmark\n"
             "recordcount=1000\noperationcount=1000\nworkload=site.ycsb.workloads.CoreWorkload\n\n"
             "readallfields=true\n\nreadproportion=0.95\nupdateproportion=0\nscanproportion=0\n"
             "insertproportion=0.05\n\nrequestdistribution=latest\n"));
  EXPECT_EQ(workload.records, 1000u);
  EXPECT_EQ(workload.operations, 1000u);
  EXPECT_EQ(workload.requests, Requests::kLatest);
  EXPECT_TRUE(workload.write_all_fields);
}

TEST(WorkloadTest, AnUnknownPropertyIsRefusedAndTheNearestNamed) {
  Properties properties = Preset("a");
  properties["recordcoutn"] = "5";
  EXPECT_THAT(Refused(properties),
              AllOf(HasSubstr("recordcoutn"), HasSubstr("is it recordcount?")));
  properties = Preset("a");
  properties["flux"] = "5";
  EXPECT_THAT(Refused(properties), AllOf(HasSubstr("'flux'"), HasSubstr("--help")));
  properties = Preset("a");
  properties["exponential.fra"] = "5";
  EXPECT_THAT(Refused(properties), HasSubstr("is it exponential.frac?"));
}

TEST(WorkloadTest, WhatBelongsToAnotherDatabaseOrMeansNothingIsOnlyNoted) {
  Properties properties = Preset("a");
  properties["redis.host"] = "localhost";
  properties["table"] = "usertable";
  std::vector<std::string> notes;
  EXPECT_TRUE(ParseWorkload(properties, notes).ok());
  EXPECT_THAT(notes, ElementsAre(HasSubstr("redis.host is of another database"),
                                 HasSubstr("table changes nothing")));
}

TEST(WorkloadTest, AValueThatCannotBeIsRefusedAndTheRightOnesNamed) {
  for (const auto& [name, value, wanted] : std::vector<std::array<std::string, 3>>{
           {"recordcount", "-1", "1 to 1000000000000"},
           {"recordcount", "0", "1 to"},
           {"recordcount", "1e6", "whole number"},
           {"recordcount", "18446744073709551617", "whole number"},
           {"readproportion", "nan", "0 to 1"},
           {"readproportion", "1.5", "0 to 1"},
           {"requestdistribution", "zipf", "zipfian"},
           {"insertstart", "1000", "not below recordcount"},
           {"insertcount", "1001", "1 to 1000"},
           {"insertorder", "random", "hashed, ordered"},
           {"zeropadding", "201", "0 to 200"},
           {"fieldlength", "2000000000", "0 to 1073741824"},
           {"fieldcount", "0", "1 to 10000"},
           {"fieldlengthdistribution", "histogram", "constant, uniform, zipfian"},
           {"minscanlength", "2000", "maxscanlength"},
           {"scanlengthdistribution", "constant", "uniform, zipfian"},
           {"threadcount", "0", "1 to 1024"},
           {"target", "inf", "0 to"},
           {"maxexecutiontime", "-1", "0 to"},
           {"dataintegrity", "maybe", "true or false"},
           {"measurement.interval", "none", "op, intended, both"},
           {"hdrhistogram.percentiles", "50,101", "0 to 100"},
           {"workload", "site.ycsb.workloads.TimeSeriesWorkload", "CoreWorkload alone"}}) {
    Properties properties = Preset("a");
    properties[name] = value;
    EXPECT_THAT(Refused(properties), AllOf(HasSubstr(name), HasSubstr(wanted))) << name;
  }
  Properties large = Preset("a");
  large["fieldcount"] = "10000";
  large["fieldlength"] = "1000000";
  EXPECT_THAT(Refused(large), HasSubstr("10000000000 bytes"));
  Properties none = Preset("c");
  none["readproportion"] = "0";
  EXPECT_THAT(Refused(none), HasSubstr("all proportions are 0"));
  EXPECT_THAT(Refused({}), HasSubstr("--records"));
}

std::map<OperationKind, uint64_t> CountKinds(const Workload& workload, uint64_t draws) {
  SharedKeys keys(workload);
  OperationSource source(OperationSource::Phase::kRun, workload, keys, 4711);
  std::map<OperationKind, uint64_t> counts;
  for (uint64_t i = 0; i < draws; ++i) {
    const std::optional<Operation> operation = source.Next();
    EXPECT_TRUE(operation.has_value());
    if (!operation) break;
    ++counts[operation->kind];
    if (operation->kind == OperationKind::kInsert) {
      keys.inserted.Acknowledge(operation->key);
    } else {
      EXPECT_LE(operation->key, keys.inserted.last());
    }
  }
  return counts;
}

TEST(OperationsTest, TheMixHasTheSharesOfItsWorkload) {
  constexpr uint64_t kDraws = 200'000;
  for (const char* name : {"a", "b", "c", "d", "e", "f", "etc"}) {
    const Workload workload = Made(name, {{"operationcount", "200000"}});
    std::map<OperationKind, uint64_t> counts = CountKinds(workload, kDraws);
    for (size_t i = 0; i < kOperationKinds; ++i) {
      const double expected = workload.shares[i] * kDraws;
      const double sigma = std::sqrt(expected * (1 - workload.shares[i]));
      EXPECT_NEAR(static_cast<double>(counts[static_cast<OperationKind>(i)]), expected, 5 * sigma)
          << name << " " << i;
    }
  }
}

TEST(OperationsTest, EveryDistributionOfRequestsKeepsToTheKeysThatAreThere) {
  for (const char* distribution :
       {"uniform", "zipfian", "latest", "hotspot", "sequential", "exponential"}) {
    SCOPED_TRACE(distribution);
    for (const char* records : {"1", "2", "1000"}) {
      CountKinds(Made("d", {{"requestdistribution", distribution},
                            {"recordcount", records},
                            {"operationcount", "2000"}}),
                 2000);
    }
  }
}

TEST(OperationsTest, SequentialRequestsGoRoundAndLatestPrefersTheNewest) {
  const Workload sequential =
      Made("c", {{"requestdistribution", "sequential"}, {"recordcount", "3"}});
  SharedKeys keys(sequential);
  OperationSource source(OperationSource::Phase::kRun, sequential, keys, 1);
  for (const uint64_t key : {0, 1, 2, 0, 1}) EXPECT_EQ(source.Next()->key, key);

  const Workload latest = Made("d");
  SharedKeys more(latest);
  OperationSource newest(OperationSource::Phase::kRun, latest, more, 1);
  uint64_t last = 0;
  uint64_t reads = 0;
  for (int i = 0; i < 20'000; ++i) {
    const std::optional<Operation> operation = newest.Next();
    if (operation->kind == OperationKind::kInsert) continue;  // never acknowledged
    ++reads;
    last += operation->key == 999 ? 1 : 0;
  }
  EXPECT_NEAR(static_cast<double>(last) / static_cast<double>(reads), 1 / Zeta(999, 0.99), 0.01);
}

TEST(OperationsTest, ScanLengthsAreUniformFromOneToTheGreatest) {
  const Workload workload = Made("e");
  SharedKeys keys(workload);
  OperationSource source(OperationSource::Phase::kRun, workload, keys, 2);
  std::map<uint64_t, uint64_t> lengths;
  for (int i = 0; i < 100'000; ++i) {
    const std::optional<Operation> operation = source.Next();
    if (operation->kind == OperationKind::kScan) ++lengths[operation->scan_length];
  }
  EXPECT_EQ(lengths.size(), 100u);
  EXPECT_EQ(lengths.begin()->first, 1u);
  EXPECT_EQ(lengths.rbegin()->first, 100u);
  for (const auto& [length, count] : lengths)
    EXPECT_NEAR(static_cast<double>(count), 950, 5 * std::sqrt(950)) << length;
}

TEST(OperationsTest, ALoadHandsOutEveryKeyOnceToAllThreads) {
  const Workload workload = Made("a", {{"insertstart", "100"}, {"insertcount", "500"}});
  SharedKeys keys(workload);
  std::vector<std::vector<uint64_t>> taken(2);
  std::vector<std::thread> threads;
  for (std::vector<uint64_t>& mine : taken) {
    threads.emplace_back([&] {
      OperationSource source(OperationSource::Phase::kLoad, workload, keys, 3);
      while (const std::optional<Operation> operation = source.Next()) {
        EXPECT_EQ(operation->kind, OperationKind::kInsert);
        mine.push_back(operation->key);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::set<uint64_t> all(taken[0].begin(), taken[0].end());
  all.insert(taken[1].begin(), taken[1].end());
  EXPECT_EQ(taken[0].size() + taken[1].size(), 500u);
  EXPECT_EQ(all.size(), 500u);
  EXPECT_EQ(*all.begin(), 100u);
  EXPECT_EQ(*all.rbegin(), 599u);
}

TEST(InsertCounterTest, AKeyCountsWhenAllBeforeItDo) {
  InsertCounter counter(10);
  EXPECT_EQ(counter.last(), 9u);
  for (const uint64_t number : {10, 11, 12}) EXPECT_EQ(counter.Next(), number);
  counter.Acknowledge(12);
  counter.Acknowledge(11);
  EXPECT_EQ(counter.last(), 9u);
  counter.Acknowledge(10);
  EXPECT_EQ(counter.last(), 12u);
}

TEST(InsertCounterTest, NoNumberIsHandedOutAheadOfTheWindow) {
  InsertCounter counter(1);
  for (uint64_t i = 1; i <= InsertCounter::kWindow; ++i) ASSERT_EQ(counter.Next(), i);
  EXPECT_EQ(counter.Next(), std::nullopt);
  counter.Acknowledge(1);
  EXPECT_EQ(counter.Next(), InsertCounter::kWindow + 1);
  for (uint64_t i = 2; i <= InsertCounter::kWindow + 1; ++i) counter.Acknowledge(i);
  EXPECT_EQ(counter.last(), InsertCounter::kWindow + 1);
}

TEST(InsertCounterTest, ThreadsLoseNoAcknowledgement) {
  InsertCounter counter(1);
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&] {
      for (int n = 0; n < 20'000; ++n) {
        const std::optional<uint64_t> number = counter.Next();
        ASSERT_TRUE(number.has_value()) << "of a window that is nearly empty";
        counter.Acknowledge(*number);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(counter.last(), 60'000u);
}

std::string Name(const Workload& workload, uint64_t number) {
  return std::string(KeyName(workload, number).view());
}

TEST(KeyNameTest, IsAsYcsbMakesIt) {
  EXPECT_EQ(Name(Made("a"), 0), "user6284781860667377211");
  EXPECT_EQ(Name(Made("a"), 1), "user8517097267634966620");
  const Workload ordered = Made("a", {{"insertorder", "ordered"}, {"zeropadding", "8"}});
  EXPECT_EQ(Name(ordered, 5), "user00000005");
  EXPECT_EQ(Name(ordered, 123'456'789), "user123456789");
  EXPECT_EQ(Name(Made("a", {{"zeropadding", "200"}}), 0).size(), 204u);
}

TEST(KeyNameTest, OfTheEtcPoolHasItsLengthAndIsTheNumber) {
  const Workload workload = Made("etc");
  for (const uint64_t number : {0, 7, 999}) {
    const std::string name = Name(workload, number);
    EXPECT_EQ(name.size(), etc::KeyBytes(number));
    EXPECT_EQ(std::stoull(name), number);
  }
}

TEST(RecordsTest, ValueMatchesOnlyItsKeyAndOnlyIfComplete) {
  const Workload workload = Made("a");
  RecordMaker maker(workload, 1, 2);
  const std::string value(maker.Make("user1"));
  EXPECT_EQ(value.size(), 1000u);
  EXPECT_TRUE(IsRecordOf("user1", value));
  EXPECT_FALSE(IsRecordOf("user2", value));
  EXPECT_FALSE(IsRecordOf("user1", value.substr(0, 999)));
  for (const size_t at : {0, 8, 16, 24, 500, 999}) {
    std::string changed = value;
    changed[at] ^= 1;
    EXPECT_FALSE(IsRecordOf("user1", changed)) << at;
  }
  EXPECT_NE(value, maker.Make("user1")) << "each write is another";
}

TEST(RecordsTest, ShortValuesFollowFromTheirKey) {
  for (const uint64_t bytes : {0, 1, 8, 23, 24, 25}) {
    const Workload workload =
        Made("a", {{"fieldcount", "1"}, {"fieldlength", absl::StrCat(bytes)}});
    RecordMaker maker(workload, 1, 2);
    const std::string value(maker.Make("user1"));
    EXPECT_EQ(value.size(), bytes);
    EXPECT_TRUE(IsRecordOf("user1", value));
    if (bytes > 0) {
      std::string changed = value;
      changed.back() ^= 1;
      EXPECT_FALSE(IsRecordOf("user1", changed)) << bytes;
    }
  }
}

TEST(RecordsTest, AChangedFieldIsATenthOfTheValueAndTheHead) {
  const Workload workload = Made("a");
  RecordMaker maker(workload, 1, 2);
  std::string value(maker.Make("user1"));
  const std::string before = value;
  maker.ChangeField("user1", value);
  EXPECT_TRUE(IsRecordOf("user1", value));
  std::set<size_t> changed;
  for (size_t i = kRecordHeadBytes; i < value.size(); ++i)
    if (value[i] != before[i]) changed.insert(i / 100);
  EXPECT_EQ(changed.size(), 1u);
  std::string empty;
  maker.ChangeField("user1", empty);
  EXPECT_TRUE(IsRecordOf("user1", empty));
}

TEST(RecordsTest, LengthsVaryAsTheWorkloadSays) {
  for (const char* distribution : {"uniform", "zipfian"}) {
    const Workload workload =
        Made("a", {{"fieldlengthdistribution", distribution}, {"minfieldlength", "50"}});
    RecordMaker maker(workload, 1, 2);
    std::set<size_t> sizes;
    for (int i = 0; i < 1000; ++i) {
      const absl::string_view value = maker.Make("user1");
      EXPECT_TRUE(IsRecordOf("user1", value));
      sizes.insert(value.size());
    }
    EXPECT_GT(sizes.size(), 20u) << distribution;
    EXPECT_GE(*sizes.begin(), 500u);
    EXPECT_LE(*sizes.rbegin(), 1000u);
  }
}

TEST(RecordsTest, AValueMayBeLongerThanTheNoiseThatItIsMadeOf) {
  const Workload workload = Made("a", {{"fieldcount", "3"}, {"fieldlength", "100000"}});
  RecordMaker maker(workload, 1, 2);
  const absl::string_view value = maker.Make("user1");
  EXPECT_EQ(value.size(), 300'000u);
  EXPECT_TRUE(IsRecordOf("user1", value));
}

}  // namespace
}  // namespace osprey::loadgen
