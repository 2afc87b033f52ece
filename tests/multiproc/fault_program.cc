// A training program as a user writes it, which goes wrong where it is told to.
//
//   fault_program --do kill --at saving --step 4 --on 1 --save model.pt
//
// Worker 1 kills itself while it saves at step 4. --stages 2 or 3 makes it a pipeline. It prints
// "starts", "begins N" before step N, "ends N" after it, and "goes wrong" before it does.
#include <epl/epl.h>
#include <sys/stat.h>
#include <torch/torch.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <iostream>
#include <map>
#include <stdexcept>
#include <string>
#include <thread>

namespace {

using Options = std::map<std::string, std::string>;

Options parse(int argc, char** argv) {
  Options options{{"--do", "nothing"}, {"--at", ""},           {"--step", "0"},
                  {"--on", "-1"},      {"--steps", "1000000"}, {"--save", ""},
                  {"--width", "64"},   {"--catch", "no"},      {"--stages", "1"}};
  for (int i = 1; i + 1 < argc; i += 2) {
    if (options.count(argv[i]) == 0) throw std::invalid_argument(argv[i]);
    options[argv[i]] = argv[i + 1];
  }
  return options;
}

// Looks words up and classifies them: a table whose rows a bad batch can miss.
struct Net : torch::nn::Module {
  Net(int64_t width, int stage_count) : stages(stage_count) {
    words = register_module("words", torch::nn::Embedding(100, width));
    middle = register_module("middle", torch::nn::Linear(width, width));
    out = register_module("out", torch::nn::Linear(width, 10));
  }
  torch::Tensor forward(torch::Tensor x) {
    if (stages > 1) epl::set_default_strategy(epl::replicate(1));
    x = words->forward(x);
    if (stages > 2) epl::set_default_strategy(epl::replicate(1));
    x = torch::relu(middle->forward(x));
    if (stages > 1) epl::set_default_strategy(epl::replicate(1));
    return out->forward(x);
  }
  const int stages;
  torch::nn::Embedding words{nullptr};
  torch::nn::Linear middle{nullptr}, out{nullptr};
};

class Program {
 public:
  explicit Program(Options options)
      : options_(std::move(options)),
        net_(std::make_shared<Net>(number("--width") + (is("model", "") && is_here() ? 1 : 0),
                                   static_cast<int>(number("--stages")))),
        optimizer_(net_->parameters(), 0.01),
        trainer_(net_, optimizer_, [this](const epl::Batch& batch) {
          if (is_now("recording")) go_wrong();
          return torch::nn::functional::cross_entropy(net_->forward(batch[0]), batch[1]);
        }) {}

  void run() {
    step_ = 0;
    if (is_now("start")) go_wrong();
    for (; step_ < number("--steps"); ++step_) {
      const epl::Batch batch = next_batch();
      std::cout << "begins " << step_ << std::endl;
      if (is_now("step")) go_wrong();
      if (is_now("inside")) std::thread([this] { go_wrong_soon(); }).detach();
      trainer_.step(batch);
      std::cout << "ends " << step_ << std::endl;
      if (!options_["--save"].empty() && step_ % 2 == 0) save();
    }
  }

 private:
  int64_t number(const std::string& option) const { return std::stoll(options_.at(option)); }
  bool is(const std::string& what, const std::string& at) const {
    return options_.at("--do") == what && options_.at("--at") == at;
  }
  bool is_here() const { return epl::Env::get().cluster.worker_index == number("--on"); }
  bool is_now(const std::string& at) const {
    return options_.at("--at") == at && is_here() && step_ == number("--step");
  }

  epl::Batch next_batch() {
    const int64_t devices =
        epl::Env::get()
            .cluster.worker_devices[static_cast<size_t>(epl::Env::get().cluster.worker_index)];
    torch::Tensor words = torch::randint(100, {4 * devices});
    if (is_now("batch")) words[-1] = 100;  // the last row goes to the last device
    // Another number of rows is another recording.
    if (options_["--at"] == "recording" && step_ == number("--step")) {
      words = torch::randint(100, {8 * devices});
    }
    return {words, torch::randint(10, {words.size(0)})};
  }

  void save() {
    std::thread watcher;
    if (is_now("saving")) watcher = std::thread([this] { go_wrong_in_mid_file(); });
    trainer_.save(options_["--save"]);
    if (watcher.joinable()) watcher.join();
    std::cout << "saved " << step_ << std::endl;
  }

  void go_wrong_in_mid_file() {
    const std::string unfinished = options_["--save"] + ".unfinished";
    struct stat file {};
    while (stat(unfinished.c_str(), &file) != 0 || file.st_size == 0) std::this_thread::yield();
    go_wrong();
  }

  void go_wrong_soon() {
    std::this_thread::sleep_for(std::chrono::seconds(1));
    go_wrong();
  }

  void go_wrong() {
    std::cout << "goes wrong" << std::endl;
    const std::string what = options_["--do"];
    if (what == "kill") raise(SIGKILL);
    if (what == "stop") raise(SIGSTOP);
    if (what == "exit") std::exit(3);
    if (what == "hang") std::this_thread::sleep_for(std::chrono::minutes(1));
    if (what == "throw") throw std::runtime_error("the user's own exception");
  }

  Options options_;
  int64_t step_ = -1;
  std::shared_ptr<Net> net_;
  torch::optim::Adam optimizer_;
  epl::Trainer trainer_;
};

}  // namespace

int main(int argc, char** argv) {
  std::cout << "starts" << std::endl;
  const Options options = parse(argc, argv);
  torch::manual_seed(1);  // the same rows on all stages, of which one reads
  if (options.at("--catch") == "no") {
    epl::init();
    Program(options).run();
    return 0;
  }
  try {
    epl::init();
    Program(options).run();
    return 0;
  } catch (const epl::JobFailed& error) {
    std::cerr << (options.at("--catch") == "job" ? "the job failed: " : "caught: ") << error.what()
              << std::endl;
    return options.at("--catch") == "job" ? 7 : 1;
  } catch (const std::exception& error) {
    std::cerr << "caught: " << error.what() << std::endl;
    return 1;
  }
}
