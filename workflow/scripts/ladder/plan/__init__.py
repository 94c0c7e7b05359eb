"""Plans: which buffers a training has and which launches its steps make."""
