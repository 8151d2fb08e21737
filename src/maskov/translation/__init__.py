"""Translation with conditional masked language models, sampled by the same kernels as others."""
