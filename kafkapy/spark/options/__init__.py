"""What users write in option(...): names, values, and a sentence for each that is wrong."""
