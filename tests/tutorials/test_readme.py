"""The example of Grain's README."""


def test_pipeline_is_a_chain_of_steps(grain):
    dataset = (
        grain.MapDataset.source(list(range(11)))
        .shuffle(seed=42)
        .map(lambda x: x + 1)
        .batch(batch_size=2)
    )
    assert [batch.tolist() for batch in dataset] == [
        [9, 7],
        [8, 10],
        [1, 6],
        [2, 3],
        [5, 11],
        [4],
    ]
