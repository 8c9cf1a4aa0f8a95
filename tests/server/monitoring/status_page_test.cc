// The status page: its rows, its HTML without JavaScript, and the JSON that keeps it up to date.

#include "server/monitoring/page/status_page.h"

#include <array>
#include <cstdint>
#include <optional>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "server/monitoring/page/status_state.h"

namespace osprey::server {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::Not;

constexpr char kScript[] = "<script>alert(\"1\")</script>&'";

StatusInput InputOfAServer() {
  StatusInput input;
  input.name = "shm:///run/osprey.sock";
  input.listen = {"shm:///run/osprey.sock", "rdma://10.0.0.7:7411"};
  StatsInput& stats = input.reading.stats;
  stats.version = "1.2.3";
  stats.poll_mode = "adaptive";
  stats.uptime = absl::Seconds(100);
  stats.counters.puts = 123456;
  stats.counters.AddPuts(98, absl::Microseconds(3));
  stats.counters.AddPuts(2, absl::Milliseconds(5));
  stats.connections = 3;
  stats.connections_max = 1024;
  stats.client_gets.hits = 1000;
  stats.client_gets.reads = 1250;
  stats.table.region_bytes = 4096;
  stats.table.index_bytes = 1024;
  stats.table.item_space_bytes = 2048;
  stats.table.item_bytes = 1536;
  stats.table.load_factor = 0.75;
  input.reading.pollers.resize(2);
  return input;
}

StatusInput InputOfAMember() {
  StatusInput input = InputOfAServer();
  input.name = "a";
  input.cluster = "etcd://127.0.0.1:2379/main";
  ClusterStats& cluster = input.reading.stats.cluster.emplace();
  cluster.primaries = 1;
  cluster.term = 7;
  cluster.in_sync = 2;
  cluster.replicas = 3;
  cluster.right_left = absl::Milliseconds(2500);
  cluster.slots = 8;
  cluster.slots_used = 5;
  cluster.moves = {{3, "a", "b"}, {4, "c", "a"}};
  cluster.members = {
      {.server = "a", .primaries = 1, .in_sync = 1, .is_known = true, .is_self = true},
      {.server = "b", .in_sync = 1, .is_known = true, .is_needed = true, .is_linked = true},
      {.server = "c"},
      {.server = "d", .is_known = true, .is_needed = true},
      {.server = "e", .is_known = true}};
  return input;
}

StatusInput InputOfADurableServer() {
  StatusInput input = InputOfAServer();
  DurabilityStats& durability = input.reading.stats.durability.emplace();
  durability.mode = "async";
  durability.log_lag = absl::Milliseconds(42);
  return input;
}

json JsonOf(const StatusInput& input) { return json::parse(StatusJson(input).body); }

// The value of that row; "(none)" without it.
std::string ValueIn(const json& state, const std::string& id) {
  for (const json& row : state["rows"]) {
    if (row["id"] == id) return row["value"];
  }
  return "(none)";
}

// The text of each cell of the row in the page.
std::vector<std::string> CellsIn(const std::string& html, const std::string& id) {
  const std::string mark = absl::StrCat("<tr id=\"row-", id, "\">");
  const size_t begin = html.find(mark);
  if (begin == html.npos) return {};
  const std::string row = html.substr(begin, html.find("</tr>", begin) - begin);
  static const std::regex cell("<t[hd][^>]*>([^<]*)</t[hd]>");
  std::vector<std::string> cells;
  for (std::sregex_iterator it(row.begin(), row.end(), cell), end; it != end; ++it)
    cells.push_back((*it)[1]);
  return cells;
}

// --- Quantiles and texts ------------------------------------------------------------------------

using Latencies = std::array<uint64_t, rdma::kLatencyBuckets>;

TEST(LatencyQuantileTest, IsLinearWithinABucketAsInPrometheus) {
  Latencies latencies = {};
  EXPECT_EQ(LatencyQuantileNs(latencies, 0.5), std::nullopt);
  latencies[0] = 10;
  EXPECT_EQ(LatencyQuantileNs(latencies, 0.5), 128);
  latencies[2] = 10;  // above 512, up to 1024
  EXPECT_EQ(LatencyQuantileNs(latencies, 0.5), 256);
  EXPECT_EQ(LatencyQuantileNs(latencies, 0.75), 768);
}

TEST(LatencyQuantileTest, TheBucketWithoutABoundIsItsBeginning) {
  Latencies latencies = {};
  latencies.back() = 1;
  EXPECT_EQ(LatencyQuantileNs(latencies, 0.99),
            static_cast<double>(rdma::LatencyBucketMaxNs(rdma::kLatencyBuckets - 2)));
}

TEST(StatusTextTest, NumbersAreShort) {
  EXPECT_EQ(CountText(0), "0");
  EXPECT_EQ(CountText(999), "999");
  EXPECT_EQ(CountText(1234567), "1,234,567");
  EXPECT_EQ(BytesText(1023), "1023 B");
  EXPECT_EQ(BytesText(uint64_t{3} << 29), "1.5 GiB");
  EXPECT_EQ(TimeText(12345), "12.3 µs");
  EXPECT_EQ(TimeText(2.5e9), "2.5 s");
  EXPECT_EQ(TimeText(250), "250 ns");
  EXPECT_EQ(TimeText(0), "0 s");
}

TEST(MemoryUsesTest, AreAllOfTheMemoryWhateverIsRead) {
  index::Table::Stats table;
  table.region_bytes = 1000;
  table.index_bytes = 100;
  table.item_space_bytes = 600;
  table.item_bytes = 550;
  // Read later: more than the space was.
  table.quarantine_bytes = 100;
  uint64_t sum = 0;
  for (const MemoryUse& use : MemoryUses(table)) sum += use.bytes;
  EXPECT_EQ(sum, 1000u);
}

// --- The page -----------------------------------------------------------------------------------

TEST(StatusPageTest, HasTheStateWithoutJavaScript) {
  const HttpPage page = StatusPage(InputOfAServer());
  EXPECT_EQ(page.status, 200);
  EXPECT_EQ(page.content_type, "text/html; charset=utf-8");
  const std::string& html = page.body;
  EXPECT_THAT(html, HasSubstr("<h1 id=\"title\">Osprey shm:///run/osprey.sock</h1>"));
  EXPECT_THAT(html,
              HasSubstr("<p id=\"health\" class=\"good\" role=\"status\">The server is well"));
  using Cells = std::vector<std::string>;
  EXPECT_EQ(CellsIn(html, "puts"), Cells({"PUTs", "123,456", "1,234", ""}));
  EXPECT_EQ(CellsIn(html, "put_p50"), Cells({"PUT at the server, p50", "3.09 µs", "", ""}));
  EXPECT_EQ(CellsIn(html, "put_p99"), Cells({"PUT at the server, p99", "6.29 ms", "", ""}));
  EXPECT_EQ(CellsIn(html, "reads_per_get"), Cells({"READs per GET", "1.25", "", ""}));
  EXPECT_EQ(CellsIn(html, "load_factor"), Cells({"Load factor of the index", "0.750", "", ""}));
  EXPECT_EQ(CellsIn(html, "memory_items_live"), Cells({"Items", "1.5 KiB", "", ""}));
  EXPECT_EQ(CellsIn(html, "connections"), Cells({"Open", "3 of 1,024", "", ""}));
  EXPECT_THAT(html, HasSubstr("x=\"250.00\" y=\"0\" width=\"375.00\""));  // the items in the bar
  EXPECT_THAT(html, Not(HasSubstr("{{")));
  EXPECT_TRUE(CellsIn(html, "log_lag").empty());
  EXPECT_TRUE(CellsIn(html, "term").empty());
}

TEST(StatusPageTest, AServerThatIsNotWellSaysWhy) {
  StatusInput input = InputOfAServer();
  input.health = absl::UnavailableError("poller 1 has not turned for 5 s");
  EXPECT_THAT(StatusPage(input).body,
              HasSubstr("class=\"bad\" role=\"status\">poller 1 has not turned for 5 s</p>"));
  EXPECT_EQ(JsonOf(input)["is_healthy"], false);
}

TEST(StatusPageTest, AMemberOfAClusterShowsItsPartInIt) {
  const std::string html = StatusPage(InputOfAMember()).body;
  EXPECT_EQ(CellsIn(html, "role")[1], "primary: it serves clients");
  EXPECT_EQ(CellsIn(html, "term")[1], "7");
  EXPECT_EQ(CellsIn(html, "in_sync")[1], "2 of 3");
  EXPECT_EQ(CellsIn(html, "right")[1], "2.5 s");
  EXPECT_EQ(CellsIn(html, "slots")[1], "5 of 8 used");
  EXPECT_EQ(CellsIn(html, "moves")[1], "shard 3 from a to b, shard 4 from c to a");
  EXPECT_EQ(CellsIn(html, "member_0")[1], "primary, this server");
  EXPECT_EQ(CellsIn(html, "member_1")[0], "Server b");
  EXPECT_EQ(CellsIn(html, "member_1")[1], "in sync, connected");
  EXPECT_EQ(CellsIn(html, "member_2")[1], "not in sync, not in etcd");
  EXPECT_EQ(CellsIn(html, "member_3")[1], "not in sync, not connected");
  EXPECT_EQ(CellsIn(html, "member_4")[1], "not in sync, no shard in common");
}

TEST(StatusPageTest, ADurableServerShowsItsLag) {
  EXPECT_EQ(CellsIn(StatusPage(InputOfADurableServer()).body, "log_lag")[1], "42 ms");
  EXPECT_EQ(JsonOf(InputOfADurableServer())["log_lag_seconds"], 0.042);
  EXPECT_FALSE(JsonOf(InputOfAServer()).contains("log_lag_seconds"));
}

// A name, an address, a reason: any of them may be HTML, or look like a mark of the page's own.
TEST(StatusPageTest, EveryTextIsEscaped) {
  StatusInput input = InputOfAMember();
  input.name = absl::StrCat("name", kScript, "{{sections}}");
  input.cluster = absl::StrCat("cluster", kScript);
  input.listen = {absl::StrCat("listen", kScript, "{{average}}")};
  input.health = absl::InternalError(absl::StrCat("health", kScript));
  input.reading.stats.version = absl::StrCat("version", kScript);
  input.reading.stats.poll_mode = kScript;
  input.reading.stats.cluster->members[1].server = absl::StrCat("member", kScript);
  input.reading.stats.cluster->moves[0].from = absl::StrCat("mover", kScript);
  input.reading.stats.durability.emplace().mode = kScript;
  const std::string html = StatusPage(input).body;
  EXPECT_THAT(html, Not(HasSubstr("<script>alert")));
  EXPECT_THAT(html, Not(HasSubstr("alert(\"")));
  const std::string escaped = "&lt;script&gt;alert(&quot;1&quot;)&lt;/script&gt;&amp;&#39;";
  for (const char* text : {"name", "cluster", "listen", "health", "version", "member", "mover"})
    EXPECT_THAT(html, HasSubstr(text + escaped));
  EXPECT_THAT(html, HasSubstr(escaped + "{{sections}}</h1>"));
  EXPECT_EQ(CellsIn(html, "listen")[1], absl::StrCat("listen", escaped, "{{average}}"));
  // Strings of JSON, which the page shows as text.
  EXPECT_EQ(ValueIn(JsonOf(input), "cluster"), absl::StrCat("cluster", kScript));
}

TEST(StatusPageTest, BytesThatAreNoUtf8AreReplaced) {
  StatusInput input = InputOfAMember();
  input.name = "\xff\xfe";
  EXPECT_EQ(JsonOf(input)["title"], "Osprey \uFFFD\uFFFD");
}

TEST(StatusPageTest, LoadsNothingFromElsewhere) {
  const HttpPage page = StatusPage(InputOfADurableServer());
  EXPECT_THAT(page.headers, HasSubstr("Content-Security-Policy: default-src 'none';"));
  EXPECT_THAT(page.headers, Not(HasSubstr("unsafe")));
  std::string all = page.body;
  for (const char* path : {"/status.css", "/status.js"}) {
    const std::optional<HttpPage> file = StatusFile(path);
    ASSERT_TRUE(file.has_value()) << path;
    EXPECT_GT(file->body.size(), 1000u);
    all += file->body;
  }
  EXPECT_FALSE(StatusFile("/page.html").has_value());
  // Names of XML, which nothing is loaded from.
  all = absl::StrReplaceAll(
      all, {{"'http://www.w3.org/2000/svg'", ""}, {"'http://www.w3.org/1999/xhtml'", ""}});
  for (const char* elsewhere : {"http:", "https:", "src=\"//", "@import", "url(", "innerHTML",
                                "insertAdjacentHTML", "outerHTML", "document.write", "eval("})
    EXPECT_THAT(all, Not(HasSubstr(elsewhere)));
}

// --- JSON ---------------------------------------------------------------------------------------

TEST(StatusJsonTest, HasTheRowsOfThePage) {
  for (const StatusInput& input : {InputOfAServer(), InputOfAMember(), InputOfADurableServer()}) {
    const std::string html = StatusPage(input).body;
    const json state = JsonOf(input);
    std::set<std::string> ids;
    for (const json& row : state["rows"]) {
      const std::string id = row["id"];
      EXPECT_TRUE(ids.insert(id).second) << id;
      const std::vector<std::string> cells = CellsIn(html, id);
      ASSERT_EQ(cells.size(), 4u) << id;
      EXPECT_EQ(cells[0], row["label"].get<std::string>());
      EXPECT_EQ(cells[1], row["value"].get<std::string>());
      EXPECT_EQ(cells[2], row["average"].get<std::string>());
      EXPECT_EQ(row["is_counter"].get<bool>(), state["counts"].contains(id)) << id;
    }
    size_t rows = 0;
    for (size_t at = html.find("<tr id="); at != html.npos; at = html.find("<tr id=", at + 1))
      ++rows;
    EXPECT_EQ(rows, ids.size());
  }
}

// What status.js reads.
TEST(StatusJsonTest, HasTheNumbersOfTheCharts) {
  const json state = JsonOf(InputOfAServer());
  EXPECT_EQ(state["uptime_seconds"], 100);
  EXPECT_EQ(state["memory_bytes"], 4096);
  EXPECT_EQ(state["counts"]["requests"], 123456);
  EXPECT_EQ(state["counts"]["client_gets"], 1000);
  EXPECT_EQ(state["counts"]["client_reads"], 1250);
  EXPECT_EQ(state["counts"]["client_torn_reads"], 0);
  ASSERT_EQ(state["latencies"]["put"].size(), rdma::kLatencyBuckets);
  EXPECT_EQ(state["latencies"]["put"][rdma::LatencyBucketOf(3000)], 98);
  EXPECT_EQ(state["latencies"]["get"].size(), rdma::kLatencyBuckets);
  uint64_t sum = 0;
  for (const json& use : state["memory"]) sum += use["bytes"].get<uint64_t>();
  EXPECT_EQ(sum, 4096u);
}

}  // namespace
}  // namespace osprey::server
