// SPDX-License-Identifier: Apache-2.0
// Counts the k-mers of DNA sequences in a map over all ranks, prints how many occur how often, as jellyfish
// histo does, and writes the maximal unitigs of their de Bruijn graph.
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "common/command_line.h"
#include "common/progress.h"
#include "common/random.h"
#include "common/report.h"
#include "common/text_file.h"
#include "kmers/count.h"
#include "kmers/genome_check.h"
#include "kmers/kmer.h"
#include "kmers/reads.h"
#include "kmers/sequence_file.h"
#include "kmers/spectrum.h"
#include "kmers/unitigs.h"

namespace {

using namespace apps::kmers;

constexpr std::size_t kWindow = std::size_t{16} << 20;  // bytes of text that are read, then counted
constexpr std::size_t kReadsPerPiece = 512;
constexpr const char* kGenome = "/usr/share/doc/bowtie/examples/genomes/NC_008253.fna.gz";

struct Arguments {
  std::vector<std::string> files;
  unsigned k = 21;
  std::uint64_t random = 0, read_length = 100, least = 1;
  double coverage = 0, errors = 0;
  std::string histogram, plot, reads, unitigs;
  bool check = false;
};

/// k-mers counted one by one: the sequential elision.
class SerialCounts {
 public:
  explicit SerialCounts(Kmers kmers) : kmers_(kmers) {}
  void add(std::string_view text) {
    kmers_.for_each(text, [this](Kmer a, Kmer b, std::size_t) { ++counts_[std::min(a, b)]; });
  }
  [[nodiscard]] bool same(const Counts& counts) const {
    return counts.size() == counts_.size() && std::all_of(counts_.begin(), counts_.end(), [&](const auto& c) {
             return counts.find(c.first) == c.second;
           });
  }

 private:
  Kmers kmers_;
  std::unordered_map<Kmer, std::uint64_t> counts_;
};

class Program {
 public:
  Program(const apps::CommandLine& line, const Arguments& arguments)
      : line_(line), common_(line.common()), arguments_(arguments), kmers_(arguments.k), report_(line) {
    report_.print_to(stderr);  // the histogram has standard output
  }

  int run();

 private:
  void load_genome();
  void write_reads(const Reads&) const;
  /// Calls f(text) with the text window by window, the last k - 1 characters of one again in the next.
  template <class F>
  void for_each_window(const F& f) const;
  std::uint64_t count(const Counts&) const;
  void count_serially(const Counts&);
  void find_unitigs(const Counts&);
  void parameters();
  [[nodiscard]] std::uint64_t steps() const;
  void results(const Counts&, std::uint64_t total);
  [[nodiscard]] std::string name() const;

  const apps::CommandLine& line_;
  const apps::Common& common_;
  const Arguments& arguments_;
  const Kmers kmers_;
  apps::Report report_;
  std::string genome_;
  std::optional<Reads> reads_;
};

/// Where the text is needed more than once, or is made here.
void Program::load_genome() {
  const apps::Progress progress("kmers: reading the genome", 0, common_.quiet);
  if (arguments_.random != 0) {
    genome_.resize(arguments_.random);
    for (std::size_t i = 0; i < genome_.size(); ++i)
      genome_[i] = base_of(apps::random_at(common_.seed, i) >> 60);
    return;
  }
  for (const std::string& name : arguments_.files) {
    SequenceFile file(name);
    if (!genome_.empty()) genome_ += 'N';
    for (std::size_t got = kWindow; got == kWindow;) {
      const std::size_t before = genome_.size();
      genome_.resize(before + kWindow);
      got = file.read(genome_.data() + before, kWindow);
      genome_.resize(before + got);
    }
  }
}

void Program::write_reads(const Reads& reads) const {
  const apps::Progress progress("kmers: writing reads", apps::Progress::Steps{reads.count()}, common_.quiet);
  const std::string& name = arguments_.reads;
  const bool fastq = name.ends_with(".fq") || name.ends_with(".fastq");
  apps::LineWriter writer(name);
  std::string bases(reads.length(), ' ');
  const std::string qualities(reads.length(), 'I');
  for (std::uint64_t i = 0; i < reads.count(); ++i) {
    const std::string read = (fastq ? "@" : ">") + std::to_string(i);
    reads.make(i, bases.data());
    writer.line(read.data(), read.size());
    writer.line(bases.data(), bases.size());
    if (fastq) {
      writer.line("+", 1);
      writer.line(qualities.data(), qualities.size());
    }
    apps::Progress::add(1);
  }
  writer.close();
}

template <class F>
void Program::for_each_window(const F& f) const {
  const std::size_t again = kmers_.k() - 1;
  const auto window = kasane::make_array<char>(kWindow + again, kasane::placement::local);
  for (const std::string& name : arguments_.files) {
    SequenceFile file(name);
    std::uint64_t before = 0;
    std::size_t kept = 0;
    for (std::size_t got = kWindow; got == kWindow;) {
      got = file.read(window.get() + kept, kWindow);
      const std::size_t bytes = kept + got;
      f(std::string_view(window.get(), bytes));
      apps::Progress::add(file.offset() - before);
      before = file.offset();
      kept = std::min(again, bytes);
      std::copy(window.get() + bytes - kept, window.get() + bytes, window.get());
    }
  }
}

std::uint64_t Program::count(const Counts& counts) const {
  if (reads_) {
    const Reads& reads = *reads_;
    const std::size_t bytes = reads.length() + 1;  // and an N
    return count_pieces(counts, kmers_, (reads.count() + kReadsPerPiece - 1) / kReadsPerPiece, true,
                        [&reads, bytes](std::size_t piece, std::string& buffer) {
                          const std::uint64_t first = piece * kReadsPerPiece;
                          const std::uint64_t n =
                              std::min<std::uint64_t>(kReadsPerPiece, reads.count() - first);
                          buffer.assign(n * bytes, 'N');
                          for (std::uint64_t i = 0; i < n; ++i)
                            reads.make(first + i, buffer.data() + i * bytes);
                          return std::string_view(buffer);
                        });
  }
  if (!genome_.empty()) return count_text(counts, kmers_, genome_, true);
  std::uint64_t n = 0;
  for_each_window([&](std::string_view text) { n += count_text(counts, kmers_, text, false); });
  return n;
}

void Program::count_serially(const Counts& counts) {
  SerialCounts serial(kmers_);
  report_.measure_serial([&] {
    if (reads_) {
      std::string read(reads_->length(), ' ');
      for (std::uint64_t i = 0; i < reads_->count(); ++i) {
        reads_->make(i, read.data());
        serial.add(read);
      }
    } else if (!genome_.empty()) {
      serial.add(genome_);
    } else {
      for_each_window([&](std::string_view text) { serial.add(text); });
    }
  });
  report_.verify(serial.same(counts), "the sequential elision counts otherwise");
}

void Program::find_unitigs(const Counts& counts) {
  std::vector<Unitig> unitigs;
  {
    const apps::Progress progress("kmers: unitigs", 0, common_.quiet);
    report_.measure_part("unitigs", [&] { unitigs = Graph(counts, kmers_, arguments_.least).unitigs(); });
  }
  std::size_t bases = 0, longest = 0;
  for (const Unitig& u : unitigs) {
    bases += u.text.size();
    longest = std::max(longest, u.text.size());
  }
  report_.result("unitigs", unitigs.size());
  report_.result("unitig_bases", bases);
  report_.result("longest_unitig", longest);
  if (!arguments_.unitigs.empty()) {
    apps::LineWriter writer(arguments_.unitigs);
    for (std::size_t i = 0; i < unitigs.size(); ++i) {
      const Unitig& u = unitigs[i];
      char mean[32];
      std::snprintf(mean, sizeof mean, "%.1f",
                    static_cast<double>(u.sum) / static_cast<double>(u.text.size() - kmers_.k() + 1));
      const std::string name = '>' + std::to_string(i) + " LN:i:" + std::to_string(u.text.size()) +
                               " km:f:" + mean + (u.circular ? " circular" : "");
      writer.line(name.data(), name.size());
      writer.line(u.text.data(), u.text.size());
    }
    writer.close();
  }
  if (!arguments_.check) return;
  const apps::Progress progress("kmers: checking unitigs", 0, common_.quiet);
  const Unitig* const lost = not_in_genome(unitigs, genome_, kmers_);
  report_.verify(lost == nullptr, "neither the genome nor its reverse complement has " +
                                      (lost ? lost->text.substr(0, 200) : ""));
}

void Program::parameters() {
  report_.parameter("k", std::uint64_t{arguments_.k});
  for (std::size_t i = 0; i < arguments_.files.size(); ++i)
    report_.parameter("file" + (i == 0 ? "" : std::to_string(i + 1)), arguments_.files[i]);
  if (arguments_.random != 0) report_.parameter("random", arguments_.random);
  if (arguments_.coverage == 0) return;
  report_.parameter("coverage", arguments_.coverage);
  report_.parameter("errors", arguments_.errors);
  report_.parameter("read_length", arguments_.read_length);
  report_.parameter("seed", common_.seed);
}

/// What the progress counts: bytes of the files, or pieces of what is in memory. 0: unknown.
std::uint64_t Program::steps() const {
  if (reads_) return reads_->count() / kReadsPerPiece;
  if (!genome_.empty()) return genome_.size() / kPieceBytes;
  std::uint64_t bytes = 0;
  for (const std::string& name : arguments_.files) {
    struct stat status{};
    if (::stat(name.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) return 0;
    bytes += static_cast<std::uint64_t>(status.st_size);
  }
  return bytes;
}

void Program::results(const Counts& counts, std::uint64_t total) {
  const Histogram h = histogram(counts);
  std::uint64_t distinct = 0, sum = 0;
  for (std::size_t n = 1; n < h.size(); ++n) {
    distinct += h[n];
    sum += n * h[n];
  }
  report_.result("kmers", total);
  report_.result("distinct", distinct);
  report_.result("once", h[1]);
  report_.verify(h.back() != 0 || sum == total,
                 "the map has " + std::to_string(sum) + " k-mers of " + std::to_string(total));
  if (!arguments_.histogram.empty() || common_.json != "-") write_histogram(h, arguments_.histogram);
  if (!arguments_.plot.empty()) write_spectrum(h, arguments_.k, name(), arguments_.plot);
}

/// Of what is counted, for people.
std::string Program::name() const {
  const std::string file = arguments_.random != 0 ? "random genome" : arguments_.files.front();
  const std::string text = file.substr(file.rfind('/') + 1);
  if (!reads_) return text;
  char reads[64];
  std::snprintf(reads, sizeof reads, ", %g x, errors %g", arguments_.coverage, arguments_.errors);
  return text + reads;
}

int Program::run() {
  parameters();
  if (arguments_.random != 0 || arguments_.coverage != 0 || arguments_.check) load_genome();
  if (arguments_.coverage != 0) {
    if (genome_.size() < arguments_.read_length)
      throw std::runtime_error("the genome has " + std::to_string(genome_.size()) +
                               " bases, fewer than a read (--read-length)");
    reads_.emplace(genome_, arguments_.read_length, arguments_.coverage, arguments_.errors, common_.seed);
    if (!arguments_.reads.empty()) write_reads(*reads_);
  }
  std::optional<Counts> counts;
  std::uint64_t total = 0;
  for (std::uint64_t r = 0; r < common_.repeat; ++r) {
    counts.emplace();
    const apps::Progress progress("kmers: counting", apps::Progress::Steps{steps()}, common_.quiet);
    report_.measure([&] { total = count(*counts); });
  }
  results(*counts, total);
  if (common_.serial) count_serially(*counts);
  if (!arguments_.unitigs.empty() || arguments_.check) find_unitigs(*counts);
  return report_.finish();
}

std::string missing_input() {
  return std::string(
             "no sequences: name FASTA or FASTQ files, give --random LENGTH, or install E. coli's "
             "genome (apt-get install bowtie-examples: ") +
         kGenome + ")";
}

int run(int argc, char** argv) {
  apps::CommandLine line(
      "kmers",
      "Counts canonical k-mers, as jellyfish count -C does, of FASTA and FASTQ files, also "
      "of .gz (-: standard input; none: the genome of E. coli of Debian's bowtie-examples), "
      "and prints the histogram, as jellyfish histo does. Lower case counts as upper case; "
      "no k-mer holds what is not ACGT");
  Arguments a;
  line.files(a.files, "Sequences");
  line.number("-k", a.k, "Bases of a k-mer, an odd number", kLeastK, kMostK);
  line.number("--random", a.random, "A random genome of so many bases instead", 1, std::uint64_t{1} << 40);
  line.real("--coverage", a.coverage, "Count simulated reads of the sequences: so many for each base", 0,
            1e6);
  line.real("--errors", a.errors, "Probability that a base of a read is another one", 0, 1);
  line.number("--read-length", a.read_length, "Bases of a read", 1, std::uint64_t{1} << 20);
  line.text("--write-reads", a.reads,
            "Write the reads here: FASTQ, if it ends with .fq or .fastq, else FASTA");
  line.text("--histogram", a.histogram, "Write the histogram here, instead of to standard output");
  line.text("--plot", a.plot, "Write the histogram here for `kasane plot`");
  line.text("--unitigs", a.unitigs, "Write the maximal unitigs here, as FASTA");
  line.number("--least", a.least, "Unitigs have k-mers that occur at least so often", 1, 1'000'000'000);
  line.toggle("--check", a.check,
              "Look whether each unitig is in the sequences, or in their reverse complement");
  line.exclusive("FILE", "--random");
  line.needs("--errors", "--coverage");
  line.needs("--read-length", "--coverage");
  line.needs("--write-reads", "--coverage");
  if (auto status = line.parse(argc, argv)) return *status;
  if (a.k % 2 == 0)
    throw std::runtime_error("-k " + std::to_string(a.k) +
                             " is even: a k-mer could be its own reverse complement");
  if (a.check && (a.errors != 0 || a.least != 1))
    throw std::runtime_error("--check needs all k-mers (no --least), and reads without --errors");
  const bool standard_input = std::find(a.files.begin(), a.files.end(), "-") != a.files.end();
  if (standard_input && (line.common().repeat > 1 || line.common().serial))
    throw std::runtime_error("standard input can be read only once: not with --repeat or --serial");
  if (a.files.empty() && a.random == 0) {
    if (::access(kGenome, R_OK) != 0) throw std::runtime_error(missing_input());
    a.files.emplace_back(kGenome);
  }
  return Program(line, a).run();
}

}  // namespace

int main(int argc, char** argv) {
  return apps::guarded("kmers", [&] { return run(argc, argv); });
}
