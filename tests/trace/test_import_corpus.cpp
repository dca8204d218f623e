// Every file of the shared corpus: recognised as what it is, with the studies that it allows, or refused for
// the right reason. The counts against the corpus's oracle are in the tests of each format.
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <map>

#include "tests/support/shared.hpp"
#include "tests/trace/import_support.hpp"

using namespace swaplab::test;

namespace {

struct Want {
  const char* file;
  const char* format;   // or "refused"
  const char* outcome;  // the studies, or a part of the refusal
};
constexpr Want kWants[] = {
    {"awkward/appledouble_1.0.2-chakra.json", "refused", "AppleDouble"},
    {"awkward/empty_profile_no_ops.json", "kineto", "none"},
    {"awkward/empty_snapshot_4gpu.pickle", "torch-snapshot", "none"},
    {"awkward/git_lfs_pointer_kineto_trace.json", "refused", "Git LFS pointer"},
    {"awkward/jax_te.xplane.pb", "refused", "XPlane protobuf"},
    {"awkward/made_inf_bandwidth.json", "kineto", "times only"},
    {"awkward/made_key_without_opening_quote.json", "refused", "byte 142: expected a key in quotes"},
    {"awkward/made_negative_duration.json", "kineto", "none"},
    {"awkward/made_ns_fraction_beyond_double.json", "kineto", "none"},
    {"awkward/made_unescaped_backslash.json", "kineto", "none"},
    {"awkward/made_zero_timestamps.json", "kineto", "none"},
    {"awkward/nanoseconds.json", "kineto", "none"},
    {"awkward/plain_gz_suffix.gz", "kineto", "none"},
    {"awkward/report.nsys-rep", "refused", "binary Nsight Systems report: export it"},
    {"awkward/trivial_BE.json", "kineto", "none"},
    {"awkward/unclosed_B_slices.json", "kineto", "none"},
    {"chakra_pb/all_reduce_8npu.0.et", "chakra", "none"},
    {"chakra_pb/custom_ring_allreduce.0.et", "chakra", "times only"},
    {"chakra_pb/feeder_chakra.0.et", "chakra", "full"},
    {"chakra_pb/small_chakra.0.json", "chakra-json", "times only"},
    {"dtr_simrd/densenet121.log.gz", "dtr-simrd", "full"},
    {"dtr_simrd/inceptionv4.log", "dtr-simrd", "full"},
    {"dtr_simrd/manifest.json", "refused", "manifest of a folder of DTR logs"},
    {"dtr_simrd/resnet32.log", "dtr-simrd", "full"},
    {"dtr_simrd/treelstm.log.gz", "dtr-simrd", "full"},
    {"dtr_simrd/unet.log", "dtr-simrd", "full"},
    {"et/et_1.0.2-chakra_nccl.json", "execution-trace", "memory only"},
    {"et/hf_GPT2_et_1.1.0.json.gz", "execution-trace", "memory only"},
    {"et/hoti_ddp_et1_1.0.2.json.gz", "execution-trace", "memory only"},
    {"et/pair_dlrm_r0_et_1.0.1.json", "execution-trace", "memory only"},
    {"et/pair_linear_et_1.0.1.json.gz", "execution-trace", "memory only"},
    {"et/pair_simple_add_et.json.gz", "execution-trace", "memory only"},
    {"et/pt2_triton_et_1.1.1.json", "execution-trace", "memory only"},
    {"et/resnet_1gpu_et_1.0.3.json.gz", "execution-trace", "memory only"},
    {"g10/BERT_Base-256.cudnnInputPF.txt", "g10-table", "times only"},
    {"g10/BERT_Base-256.cudnnPF.txt", "g10-table", "times only"},
    {"g10/BERT_Base-256.cudnnTime.txt", "g10-table", "times only"},
    {"g10/BERT_Base-256.cudnnWorkspace.txt", "g10-table", "none"},
    {"g10/BERT_Base-256.kernels.config", "g10", "full"},
    {"g10/BERT_Base-256.tensors.config", "g10-tensors", "none"},
    {"g10/BERT_Base.net.txt", "refused", "description of a network"},
    {"g10/Inceptionv3-512.cudnnInputPF.txt", "g10-table", "times only"},
    {"g10/Inceptionv3-512.cudnnPF.txt", "g10-table", "times only"},
    {"g10/Inceptionv3-512.cudnnTime.txt", "g10-table", "times only"},
    {"g10/Inceptionv3-512.cudnnWorkspace.txt", "g10-table", "none"},
    {"g10/Inceptionv3-512.kernels.config", "g10", "full"},
    {"g10/Inceptionv3-512.tensors.config", "g10-tensors", "none"},
    {"g10/Inceptionv3.net.txt", "refused", "description of a network"},
    {"kineto/hta_alexnet_fwd.json.gz", "kineto", "times only"},
    {"kineto/hta_cpu_only.json.gz", "kineto", "none"},
    {"kineto/hta_event_sync.json.gz", "kineto", "times only"},
    {"kineto/hta_mi250_minitoy_train.json.gz", "kineto", "times only"},
    {"kineto/hta_nccl_train.json.gz", "kineto", "times only"},
    {"kineto/hta_negative_queue.json.gz", "kineto", "times only"},
    {"kineto/hta_no_distributed_info.json.gz", "kineto", "none"},
    {"kineto/hta_resnet_ns_resolution.json.gz", "kineto", "times only"},
    {"kineto/hta_trace_diff_control.json.gz", "kineto", "times only"},
    {"kineto/hta_train_mem_8rank_r1.json.gz", "kineto", "memory only"},
    {"kineto/hta_vit_sampled_rank0.json.gz", "kineto", "times only"},
    {"kineto/kineto_out_of_order_before_fix.json", "kineto", "times only"},
    {"kineto/pair_dlrm_r0_kineto.json", "kineto", "times only"},
    {"kineto/pair_linear_kineto.json.gz", "kineto", "times only"},
    {"kineto/pair_simple_add_kineto.json.gz", "kineto", "times only"},
    {"kineto/pt_gpu_forward_mem_flops.json", "kineto", "full"},
    {"kineto/tb_resnet50_train_mem_nw0.json.gz", "kineto", "memory only"},
    {"kineto/tl_b200_eager.json.gz", "kineto", "times only"},
    {"kineto/tl_gemm_unit.json", "kineto", "times only"},
    {"kineto/tl_h100_bert_small_mem.json.gz", "kineto", "full"},
    {"kineto/tl_h100_qwen_mem.json.gz", "kineto", "full"},
    {"kineto/tl_h100_vit_mem.json.gz", "kineto", "full"},
    {"kineto/tl_hip_norm_layers_fwd_bwd_mem.json.gz", "kineto", "full"},
    {"kineto/tl_mi210_gpu_only.json.gz", "kineto", "times only"},
    {"kineto/tl_sglang_capture_mem.json.gz", "kineto", "full"},
    {"kineto/tl_torch_compile_triton.json.gz", "kineto", "times only"},
    {"kineto/tl_vllm_cudagraph_decode.json.gz", "kineto", "times only"},
    {"memplan/idealloc_iopddl_G_1.csv", "lifetimes-csv", "memory only"},
    {"memplan/idealloc_iopddl_S_1.csv", "lifetimes-csv", "memory only"},
    {"memplan/idealloc_somas_tensors_resnet50.csv", "lifetimes-csv", "memory only"},
    {"memplan/minimalloc_A.csv", "lifetimes-csv", "memory only"},
    {"memplan/minimalloc_B.csv", "lifetimes-csv", "memory only"},
    {"memplan/minimalloc_C.csv", "lifetimes-csv", "memory only"},
    {"memplan/minimalloc_D.csv", "lifetimes-csv", "memory only"},
    {"memplan/minimalloc_E.csv", "lifetimes-csv", "memory only"},
    {"memplan/minimalloc_F.csv", "lifetimes-csv", "memory only"},
    {"memplan/minimalloc_input.12.csv", "lifetimes-csv", "memory only"},
    {"optrace/nsys_export_a.sqlite", "nsys-sqlite", "times only"},
    {"optrace/nvbandwidth_readme_output.txt", "refused", "'swaplab calibrate'"},
    {"optrace/pipedream_alexnet.graph.txt", "pipedream", "full"},
    {"optrace/pipedream_gnmt.graph.txt", "pipedream", "full"},
    {"optrace/pipedream_nasnetalarge.graph.txt", "pipedream", "full"},
    {"optrace/pipedream_resnet50.graph.txt", "pipedream", "full"},
    {"optrace/pipedream_vgg16.graph.txt", "pipedream", "full"},
    {"optrace/simai_workload_analytical.txt", "simai", "times only"},
    {"optrace/tf_timeline_anna.json", "kineto", "none"},
    {"optrace/torch_memory_timeline_raw.json.gz", "memory-timeline", "memory only"},
    {"optrace/vtrain_a100_AR_GPU2.csv", "refused", "'swaplab calibrate'"},
    {"torch_snapshot/decomfl_full_history.pickle", "torch-snapshot", "memory only"},
    {"torch_snapshot/forward_bf16_128.pickle", "torch-snapshot", "memory only"},
    {"torch_snapshot/gpt_medium_128_training.pickle", "torch-snapshot", "memory only"},
    {"torch_snapshot/magma_steady.pickle", "torch-snapshot", "memory only"},
    {"torch_snapshot/old_torch_13b_single_free.pickle", "torch-snapshot", "none"},
    {"torch_snapshot/tiny_segment_alloc.pickle", "torch-snapshot", "memory only"},
};

}  // namespace

TEST_CASE("import corpus: every file has its outcome, and every trace is consistent") {
  const auto root = shared_path("corpus");
  if (!root) return;
  std::map<std::string, const Want*> wants;
  for (const Want& want : kWants) wants.emplace(want.file, &want);
  std::size_t seen = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(*root)) {
    if (!entry.is_regular_file()) continue;
    const std::string name = std::filesystem::relative(entry.path(), *root).string();
    if (name == "INDEX.md" || name == "oracle.json") continue;
    CAPTURE(name);
    const auto found = wants.find(name);
    REQUIRE(found != wants.end());
    ++seen;
    std::string format = "refused", outcome;
    try {
      const auto result = swaplab::import_files({entry.path().string()});
      format = result.report.format;
      outcome = swaplab::study_name(result.report.study);
      CHECK_FALSE(result.report.study_reason.empty());
      CHECK(result.report.files == std::vector<std::string>{entry.path().string()});
      CHECK((result.report.study == swaplab::StudyKind::none || result.trace.has_value()));
      if (result.trace) CHECK(swaplab::examine_trace(*result.trace).problems.empty());
    } catch (const swaplab::Error& error) {
      outcome = error.what();
    }
    CHECK(format == found->second->format);
    CHECK_MESSAGE(contains(outcome, found->second->outcome), outcome);
  }
  CHECK(seen == std::size(kWants));
}
