// Whether this process is a child of the one where the mark was made. A child shares its parent's
// connections and must not use them.
//
// Thread rule: thread-safe. RaiseIfForked: the caller holds the GIL.

#ifndef OSPREY_CLIENT_PYTHON_FORK_MARK_H_
#define OSPREY_CLIENT_PYTHON_FORK_MARK_H_

namespace osprey::python {

class ForkMark {
 public:
  ForkMark();
  bool IsForked() const;
  void RaiseIfForked() const;

 private:
  const int forks_;  // of the process when this was made
};

}  // namespace osprey::python

#endif  // OSPREY_CLIENT_PYTHON_FORK_MARK_H_
