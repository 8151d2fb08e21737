"""Translation: conditional masked language models, sampled by the same kernels as all others."""
