"""What each node sees: datasets, partitions, batching and augmentation on whole tensors."""
