// The Python package against a kvserver: each file of tests is a run of pytest. In the lab a part of the
// files runs, and all with --long.

#include <cstdlib>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/client/shards/shard_servers.h"
#include "tests/support/subprocess.h"

namespace osprey {
namespace {

class PythonClientTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto server = ServerProcess::Start(NewListenAddress());
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }

  void Run(const std::string& file) { RunAt(server_->uri(), file); }
  void RunAt(const std::string& uri, const std::string& file) {
    ProgramOptions options;
    options.environment = {"PYTHONPATH=client/python", "PYTHONDONTWRITEBYTECODE=1",
                           "OSPREY_URI=" + uri, absl::StrCat("OSPREY_SERVER_PID=", server_->pid())};
    options.timeout = absl::Minutes(4);
    const ProgramResult result = RunProgram({"/usr/bin/python3", "-m", "pytest", "-q", "-x", "-p",
                                             "no:cacheprovider", "tests/client/python/" + file},
                                            options);
    EXPECT_EQ(result.exit_status, 0) << result.out << result.err;
    EXPECT_NE(result.out.find(" passed"), std::string::npos) << result.out;
  }

  std::unique_ptr<ServerProcess> server_;
};

// What says nothing more over verbs, or takes long where a processor is emulated.
class PythonClientLongTest : public PythonClientTest {
 protected:
  void SetUp() override {
    if (InLab() && std::getenv("OSPREY_TEST_LONG") == nullptr)
      GTEST_SKIP() << "over verbs with --long";
    PythonClientTest::SetUp();
  }
};

TEST_F(PythonClientTest, OperationsAndTheirErrors) { Run("client_test.py"); }

TEST_F(PythonClientTest, BuffersWithoutACopy) { Run("buffers_test.py"); }

TEST_F(PythonClientLongTest, Arrays) { Run("arrays_test.py"); }

TEST_F(PythonClientLongTest, TensorsOfPyTorch) {
  if (RunProgram({"/usr/bin/python3", "-c", "import torch"}).exit_status != 0)
    GTEST_SKIP() << "PyTorch is not installed; tools/install-packages tensors";
  Run("tensors_test.py");
}

TEST_F(PythonClientLongTest, Asyncio) { Run("aio_test.py"); }

TEST_F(PythonClientLongTest, MethodsOfMooncakesStore) { Run("mooncake_test.py"); }

TEST_F(PythonClientTest, ThreadsForksAndInterruptedWaits) { Run("waits_test.py"); }

TEST_F(PythonClientLongTest, AShardThatIsGoneDelaysItsOwnKeysAlone) {
  ShardServers servers(4);
  servers.Stop(2);
  RunAt(servers.uri(), "shards_test.py");
}

TEST_F(PythonClientLongTest, Examples) { Run("examples_test.py"); }

TEST_F(PythonClientLongTest, TheReadmeRuns) { Run("readme_test.py"); }

TEST_F(PythonClientLongTest, TypesAreChecked) { Run("types_test.py"); }

}  // namespace
}  // namespace osprey
