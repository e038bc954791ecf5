def test_a_mask_is_no_list_of_sample_numbers() -> None:
    with pytest.raises(LoaderError, match=r"np.flatnonzero"):
        Subset(ArrayDataset(np.arange(3)), [True, False, True])
