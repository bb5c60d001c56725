"""All questions, as the pages show them."""

import importlib

from harness import Question

GROUPS = {
    "Loaders": """getitem array map map_workers images over_time first_batch indices
        random_map resume memory receive to_device import auto_workers auto_settling""",
    "Record files": """records_tokens records_noise records_tokens_workers
        records_noise_workers records_large record_sizes record_reader record_groups
        record_open record_open_memory many_shards tar tf_record tf_index parse_example
        parquet mds""",
    "Datasets": """dataset_map dataset_default dataset_mix mix_tokens mix_shares
        dataset_step dataset_window_shuffle dataset_interleave pack_first_fit
        pack_best_fit pack_concat_split planned_pack text_throughput text_first_batch
        watching consumed""",
    "Columns, text and far files": """parquet_columns parquet_columns_workers
        parquet_global columns hugging_face tokenize tokenize_command text_pack
        pack_plan pack_density pack_ranks pack_first_row rows_index rows_first_batch
        far_shuffled far_windows far_cached""",
    "Pictures": "jpeg jpeg_normalized jpeg_threads",
    "PyTorch loaders": """torch_tensor_dataset torch_single torch_small torch_dict
        torch_ints torch_images torch_slow torch_first_batch torch_epochs
        torch_boundary""",
    "Many ranks on a host": """host_cpu host_cpu_small host_memory host_first_batch
        host_broadcast""",
    "A cluster": "ray_records ray_images ray_jpeg ray_text ray_node",
}
QUESTIONS = tuple(name for names in GROUPS.values() for name in names.split())


def question_of(name: str) -> Question:
    """Returns the question of `bench_<name>.py`."""
    return importlib.import_module(f"bench_{name}").QUESTION
