// The checks' view of the machine: files, devices, a few commands. The checks (checks.h) use
// nothing else, so that tests can substitute other machines.
//
// Thread rule: one thread at a time.

#ifndef OSPREY_TOOLS_DOCTOR_MACHINE_H_
#define OSPREY_TOOLS_DOCTOR_MACHINE_H_

#include <optional>
#include <string>
#include <vector>

#include "rdma/devices.h"

namespace osprey::doctor {

// What adjtimex(2) says.
struct KernelClock {
  double gain = 0;  // of a second, by which CLOCK_MONOTONIC gains on the hardware's; < 0: it loses
  bool is_synchronized = false;  // to some NTP service
};

class Machine {
 public:
  virtual ~Machine() = default;

  // Returns at most kFileBytesMax of the file, without white space at its ends; nullopt if it
  // cannot be read. Paths are absolute.
  virtual std::optional<std::string> Read(const std::string& path) const = 0;
  // Names in a folder, sorted; empty if it does not exist.
  virtual std::vector<std::string> List(const std::string& path) const = 0;
  // The target of a symbolic link; nullopt if it is none.
  virtual std::optional<std::string> Link(const std::string& path) const = 0;
  // Opens for reading and writing, and closes again. 0 on success, otherwise the errno.
  virtual int OpenError(const std::string& path) const = 0;
  bool Exists(const std::string& path) const;

  virtual std::vector<rdma::VerbsDevice> VerbsDevices() const = 0;
  virtual rdma::ForkSupport Fork() const = 0;
  // nullopt: it cannot be read.
  virtual std::optional<KernelClock> Clock() const = 0;
  // Standard output of a command that ended with status 0 within kCommandTimeMax; nullopt
  // otherwise.
  virtual std::optional<std::string> Run(const std::vector<std::string>& args) const = 0;

  static constexpr size_t kFileBytesMax = 4 << 20;
  static constexpr int kCommandMsMax = 3000;
};

// Files below `root`: a base for tests. "" means this machine's root.
class RootedMachine : public Machine {
 public:
  explicit RootedMachine(std::string root) : root_(std::move(root)) {}
  std::optional<std::string> Read(const std::string& path) const override;
  std::vector<std::string> List(const std::string& path) const override;
  std::optional<std::string> Link(const std::string& path) const override;
  int OpenError(const std::string& path) const override;

 private:
  const std::string root_;
};

// The machine of this process.
class ThisMachine : public RootedMachine {
 public:
  ThisMachine() : RootedMachine("") {}
  std::vector<rdma::VerbsDevice> VerbsDevices() const override;
  rdma::ForkSupport Fork() const override;
  std::optional<KernelClock> Clock() const override;
  std::optional<std::string> Run(const std::vector<std::string>& args) const override;
};

}  // namespace osprey::doctor

#endif  // OSPREY_TOOLS_DOCTOR_MACHINE_H_
