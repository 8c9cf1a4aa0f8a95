// The text of kvbench --help before and behind its flags.

#ifndef OSPREY_TOOLS_KVBENCH_HELP_H_
#define OSPREY_TOOLS_KVBENCH_HELP_H_

namespace osprey {

inline constexpr char kUsage[] =
    R"(usage: kvbench load|run [--workload=a…f|etc] [FLAGS] [-p NAME=VALUE]… [-P FILE]…
       kvbench merge A.json B.json … [--json=FILE] [--hdr=FILE] [--series=FILE] [--plot=FILE]

load writes the records, run executes operations on them, merge combines the results of several
processes that ran side by side. The report, in YCSB's lines, goes to standard output.

  kvbench load --server=shm://$XDG_RUNTIME_DIR/osprey.sock --records=100000
  kvbench run --server=shm://$XDG_RUNTIME_DIR/osprey.sock --records=100000 --workload=b --threads=2 --depth=16

)";

inline constexpr char kMoreHelp[] = R"(
Properties (-p, and -P in Java's syntax, of which YCSB's workload files are examples). The workload
comes first, then files, then -p, then flags; a later value replaces an earlier one.

  recordcount operationcount threadcount target maxexecutiontime dataintegrity status
  readproportion updateproportion insertproportion scanproportion readmodifywriteproportion
  requestdistribution=uniform|zipfian|latest|hotspot|sequential|exponential
  hotspotdatafraction hotspotopnfraction exponential.percentile exponential.frac
  insertstart insertcount insertorder=hashed|ordered zeropadding
  fieldcount fieldlength minfieldlength fieldlengthdistribution=constant|uniform|zipfian
  writeallfields readallfields sizes=ycsb|etc
  minscanlength maxscanlength scanlengthdistribution=uniform|zipfian
  measurement.interval=op|intended|both hdrhistogram.percentiles=50,95,99,99.9 status.interval

A record is one value: its fields, one after the other. An update writes the whole value;
with writeallfields=false it reads it, changes one field and writes it back. A scan continues the
previous one of its thread, since keys have no order, and fetches the values.

Exit status: 0 done; 2 usage; 3 cannot connect; 4 other errors: failed operations, an interrupted
load or run, or with --verify a wrong value. Ctrl-C ends a load or run early, with its report; a
second Ctrl-C without it.
)";

}  // namespace osprey

#endif  // OSPREY_TOOLS_KVBENCH_HELP_H_
